"""A folder, zip or tar of images in class folders.

    CLASS/image          one folder per class
    TASK/CLASS/image     one folder of class folders per task, or per domain

Both may lie below `train` and `test`, and the second may have `train` and `test` below each task. Where there is
no `test`, `val` (or `valid`, `validation`) is the test set; where there is one, `val` is left out. `train` may have
tasks where `test` has none. A folder around all the others does not count. Order is natural: task2 comes before
task10.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from promptpool.data.decoding import image_suffixes
from promptpool.data.images import ImageFile, printable
from promptpool.data.own.splits import WORDS
from promptpool.data.stores import Folder, Store, open_store
from promptpool.errors import BadFileError

CLUTTER = ("thumbs.db", "desktop.ini", "__macosx")
LAYOUTS = "CLASS/image or TASK/CLASS/image, both also below train/ and test/, or TASK/train/CLASS/image"

Parts = tuple[str, ...]
Roles = tuple[str, ...]  # what each folder above an image says: "class", "group", "split"


def read_class_folders(path: Path) -> tuple[Store, list[ImageFile]]:
    """The files of class folders, with their classes, groups and splits as the folders say."""
    store = open_store(path)
    found = {name: tuple(name.split("/")) for name in store.names() if not _is_clutter(name)}
    links = _linked_folders(store)
    if not found:
        what = "only links to folders, which are not followed" if links else "no files"
        raise BadFileError(f"{path}: holds {what}; expected {LAYOUTS}")
    suffixes = image_suffixes()
    images = [parts for parts in found.values() if Path(parts[-1]).suffix.lower() in suffixes] or list(found.values())
    around = _around(images)
    roles = _roles([parts[len(around) :] for parts in images], path)
    entries = [_entry(name, parts, around, roles) for name, parts in found.items()]
    entries += [ImageFile(link, printable(link)) for link in links]
    tested = any(entry.split == "test" for entry in entries)
    kept = [
        entry._replace(split="test" if entry.split == "validation" else entry.split)
        for entry in entries
        if entry.split != "validation" or not tested
    ]
    return store, sorted(kept, key=lambda entry: [natural(part) for part in entry.name.split("/")])


def natural(text: str) -> tuple[list[tuple[bool, int, str]], str]:
    """What to sort by, so that numbers in a name count as numbers."""
    parts = re.split(r"([0-9]+)", text.casefold())
    numbers = [part.lstrip("0") for part in parts]
    return [
        (False, len(numbers[i]), numbers[i]) if i % 2 else (True, 0, part) for i, part in enumerate(parts) if part
    ], text


def _is_clutter(name: str) -> bool:
    return any(part.startswith(".") or part.lower() in CLUTTER for part in name.split("/"))


def _linked_folders(store: Store) -> list[str]:
    """Folders that are only linked to; they are not followed, and named so that nobody misses them."""
    if not isinstance(store, Folder):
        return []
    return [
        (Path(folder) / name).relative_to(store.where).as_posix()
        for folder, folders, _ in os.walk(store.where)
        for name in folders
        if (Path(folder) / name).is_symlink() and not _is_clutter(name)
    ]


def _around(images: Sequence[Parts]) -> Parts:
    """The folders around all the others."""
    around: Parts = ()
    while True:
        below = [parts[len(around) :] for parts in images]
        first = below[0][0]
        if first.lower() in WORDS or any(parts[0] != first or len(parts) < 3 for parts in below):
            return around
        around = (*around, first)


def _roles(images: Sequence[Parts], path: Path) -> dict[str, Roles]:
    """What the folders above an image say, by the first of them where that is a split, otherwise under ""."""
    if all(parts[0].lower() in WORDS for parts in images):
        kinds: dict[str, list[Parts]] = {}
        for parts in images:
            kinds.setdefault(parts[0].lower(), []).append(parts[1:])
        return {kind: ("split", *_roles_below(found, path)) for kind, found in kinds.items()}
    beside = [parts[0] for parts in images if parts[0].lower() not in WORDS]
    if len(beside) < len(images) and any(len(parts) > 2 for parts in images):
        raise BadFileError(f"{path}: {printable(beside[0])} lies beside train or test; expected {LAYOUTS}")
    if all(len(parts) == 4 and parts[1].lower() in WORDS for parts in images):
        return {"": ("group", "split", "class")}
    return {"": _roles_below(images, path)}


def _roles_below(images: Sequence[Parts], path: Path) -> Roles:
    depths = {len(parts): parts for parts in images}
    if len(depths) > 1:
        shown = " and ".join("/".join(depths[depth]) for depth in sorted(depths)[:2])
        raise BadFileError(f"{path}: images lie at different depths ({printable(shown)}); expected {LAYOUTS}")
    if set(depths) == {2}:
        return ("class",)
    if set(depths) == {3} and not all(parts[1].lower() in WORDS for parts in images):
        return ("group", "class")
    raise BadFileError(f"{path}: {printable('/'.join(images[0]))} lies in no class folder; expected {LAYOUTS}")


def _entry(name: str, parts: Parts, around: Parts, roles: dict[str, Roles]) -> ImageFile:
    """What the folders say of a file; one that lies elsewhere than the images has no label."""
    folders = parts[len(around) : -1]
    expected = roles.get("", roles.get(folders[0].lower(), ()) if folders else ())
    if parts[: len(around)] != around or not expected or len(folders) != len(expected):
        return ImageFile(name, "")
    said = {role: printable(folder) for role, folder in zip(expected, folders, strict=True)}
    split = WORDS.get(said.get("split", "").lower(), "")
    if "split" in said and not split:
        return ImageFile(name, "")
    return ImageFile(name, said["class"], said.get("group", ""), split)
