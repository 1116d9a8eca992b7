"""Weights by the name they have on the Hugging Face hub, fetched once into a folder of their own.

What is fetched lies in owner/name of the weights folder: config.json, preprocessor_config.json where there is one,
model.safetensors, and `origin.json`, which says the licence and the commit. The hub tells every file's size and sum
beforehand; a download resumes and is checked as those of data sets are (`data.downloads`). Nothing that could run is
fetched. Models that huggingface_hub has in its cache are found there. HF_ENDPOINT names another server, HF_TOKEN is
sent to it.
"""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from promptpool.backbones.descriptions import from_folder
from promptpool.backbones.known import KNOWN, hint
from promptpool.data import downloads
from promptpool.data.sets.published import Remote
from promptpool.data.transfer import BrokenError, RefusedError, UnreachableError, read
from promptpool.errors import BadFileError
from promptpool.files import locked, weights_folder, write_whole
from promptpool.progress import report

CONFIG, PREPROCESSOR, TENSORS, ORIGIN = "config.json", "preprocessor_config.json", "model.safetensors", "origin.json"
HUB = "https://huggingface.co"
UNSTATED = "not stated"
LONGEST = 2**24  # bytes of what the hub says of a model; of models with many files it says much


class Offer(NamedTuple):
    """What the hub has under a name: files with sizes and sums, at one commit."""

    name: str
    commit: str
    licence: str
    gated: bool
    files: tuple[Remote, ...]

    @property
    def size(self) -> int:
        return sum(file.size or 0 for file in self.files)


def is_hub_name(name: str) -> bool:
    """True if `name` reads `owner/name`."""
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", name, re.ASCII) is not None


def is_commit(text: str) -> bool:
    """True if `text` is the name of a commit."""
    return re.fullmatch(r"[0-9a-f]{40}", text) is not None


def home(name: str) -> str:
    """The page of a model."""
    return f"{HUB}/{name}"


def fetch(name: str) -> Path:
    """The folder of a hub model, downloaded unless it is here."""
    if (here := find(name)) is not None:
        return here
    return download(look_up(name))


def find(name: str) -> Path | None:
    """The folder of a hub model that is here: in the weights folder, or else in the cache of huggingface_hub."""
    own = weights_folder() / name
    return own if _is_whole(own) else _in_cache(name)


def licence(name: str) -> str:
    """What `origin.json` says that the licence is, or else what is known of the name."""
    said = _origin(name).get("licence")
    return said if isinstance(said, str) else KNOWN[name].licence if name in KNOWN else UNSTATED


def look_up(name: str) -> Offer:
    """Ask the hub what it has under a name; of a model that is here in part, at the commit it was begun with."""
    begun = _origin(name).get("commit")
    try:
        content = ask(name, revision=begun if isinstance(begun, str) and is_commit(begun) else None, token=own_token())
    except UnreachableError as error:
        raise BadFileError(f"{name}: the hub cannot be reached ({error}); {_by_hand(name)}{hint(name)}") from error
    except BrokenError as error:
        raise BadFileError(f"{name}: the hub does not answer well ({error}); {_by_hand(name)}") from error
    except RefusedError as error:
        raise BadFileError(_refusal(name, error)) from error
    try:
        return _offer(name, json.loads(content))
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, BadFileError):
            raise
        raise BadFileError(
            f"{name}: the hub does not answer well (no description of a model); {_by_hand(name)}"
        ) from error


def download(offer: Offer) -> Path:
    """Fetch the files of an offer; small ones first, so that what cannot be read is refused before its weights."""
    folder = weights_folder() / offer.name
    if offer.gated and not own_token():
        raise BadFileError(f"{offer.name}: its owner asks for consent; {_consent(offer.name)}")
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / f"{ORIGIN}.lock", waiting=report):
        said = {"name": offer.name, "home": home(offer.name), "licence": offer.licence, "commit": offer.commit}
        write_whole(folder / ORIGIN, (json.dumps(said, indent=1) + "\n").encode())
    for file in offer.files:
        if file.name == TENSORS:
            from_folder(folder)
        try:
            downloads.fetch(file, folder, token=own_token())
        except BadFileError as error:
            consent = f"; {_consent(offer.name)}" if offer.gated else ""
            raise BadFileError(f"{offer.name}: {error}{consent}") from error
    return folder


def ask(name: str, *, revision: str | None, token: str | None) -> bytes:
    """What the hub says of a name at a revision, by default its latest: JSON, with sizes and sums of all files."""
    at = "" if revision is None else f"/revision/{quote(revision, safe='')}"
    url = f"{endpoint()}/api/models/{name}{at}?blobs=true"
    for pause in downloads.PAUSES:
        try:
            return read(url, most=LONGEST, timeout=downloads.TIMEOUT, token=token)
        except UnreachableError:
            raise
        except BrokenError:
            time.sleep(pause)
    return read(url, most=LONGEST, timeout=downloads.TIMEOUT, token=token)


def _offer(name: str, said: dict[str, Any]) -> Offer:
    files = {file["rfilename"]: file for file in said["siblings"]}
    if missing := [file for file in (CONFIG, TENSORS) if file not in files]:
        raise BadFileError(_lacking(name, missing, files))
    commit = said["sha"]
    if not is_commit(commit):
        raise ValueError(commit)
    return Offer(
        name=name,
        commit=commit,
        licence=_licence(said),
        gated=bool(said.get("gated")),
        files=tuple(remote(name, commit, files[file]) for file in (CONFIG, PREPROCESSOR, TENSORS) if file in files),
    )


def remote(name: str, commit: str, file: dict[str, Any]) -> Remote:
    """A file of the hub: large ones have a SHA-256, small ones git's sum."""
    large = file.get("lfs") or {}
    size = large.get("size", file.get("size"))
    url = f"{endpoint()}/{name}/resolve/{commit}/{file['rfilename']}"
    sums = {"sha256": large["sha256"]} if "sha256" in large else {"blob": file.get("blobId") or ""}
    return Remote(file["rfilename"], (url,), None if size is None else int(size), **sums)


def _licence(said: dict[str, Any]) -> str:
    """The licence that a model's card names; one that is "other" has its own name and place."""
    card = said.get("cardData") or {}
    named = card.get("license") or [tag[8:] for tag in said.get("tags", []) if tag.startswith("license:")]
    text = ", ".join(map(str, named)) if isinstance(named, list) else str(named)
    if text == "other":
        text = " ".join(str(card[key]) for key in ("license_name", "license_link") if card.get(key)) or text
    printable = "".join(letter if letter.isprintable() else " " for letter in text)  # it is shown on a terminal
    return " ".join(printable.split())[:200] or UNSTATED


def _lacking(name: str, missing: list[str], files: dict[str, Any]) -> str:
    """What a model has instead of the files that are read."""
    others = [file for file in files if file.endswith((".bin", ".pth", ".pt", ".ckpt", ".msgpack", ".h5", ".npz"))]
    if f"{TENSORS}.index.json" in files:
        why = "its weights are split over several files, which are not put together here"
    elif TENSORS in missing and others:
        why = f"only safetensors are fetched, and it has {', '.join(sorted(others)[:3])}"
    else:
        why = "it is no ViT that can be read here"
    return f"{name}: this model has no {' and no '.join(missing)}: {why}{hint(name)}"


def _refusal(name: str, error: RefusedError) -> str:
    if error.code == "GatedRepo" or error.status == 403:
        return f"{name}: its owner asks for consent; {_consent(name)}"
    if error.status in (401, 404):
        return f"{name}: neither a path here nor a model that the hub lets you read{hint(name)}"
    return f"{name}: the hub refuses ({error}); {_by_hand(name)}"


def _consent(name: str) -> str:
    return f"give it at {home(name)} and set HF_TOKEN to a token of yours ({HUB}/settings/tokens)"


def _by_hand(name: str) -> str:
    return (
        f"download {CONFIG}, {TENSORS} and, if there is one, {PREPROCESSOR} from {home(name)}/tree/main "
        f"into {(weights_folder() / name).absolute()}"
    )


def _origin(name: str) -> dict[str, Any]:
    try:
        said = json.loads((weights_folder() / name / ORIGIN).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _is_whole(folder: Path) -> bool:
    return (folder / CONFIG).is_file() and (folder / TENSORS).is_file()


def _in_cache(name: str) -> Path | None:
    """The snapshot that huggingface_hub has of a model, if it has all that is read.

    A library that needed only the tensors has left the mean and deviation behind; such a snapshot does not do.
    """
    root = os.environ.get("HF_HUB_CACHE") or Path(os.environ.get("HF_HOME") or _user_cache() / "huggingface") / "hub"
    model = Path(root).expanduser() / f"models--{name.replace('/', '--')}"
    try:
        commit = (model / "refs" / "main").read_text(encoding="utf-8").strip()
        snapshot = model / "snapshots" / commit
        if not is_commit(commit) or not _is_whole(snapshot):
            return None
        complete = (snapshot / PREPROCESSOR).is_file() or (model / ".no_exist" / commit / PREPROCESSOR).exists()
        return snapshot if complete or '"architecture"' in (snapshot / CONFIG).read_text(encoding="utf-8") else None
    except (OSError, ValueError):
        return None


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def endpoint() -> str:
    """The server that is asked."""
    return (os.environ.get("HF_ENDPOINT") or HUB).rstrip("/")


def own_token() -> str | None:
    """The token that the environment gives."""
    return os.environ.get("HF_TOKEN") or None
