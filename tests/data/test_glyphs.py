from __future__ import annotations

import contextlib
import hashlib
import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.nn.functional as F

from promptpool.data.glyphs import glyph_five, glyph_styles, glyphs100
from promptpool.data.glyphs.cache import cached
from promptpool.data.glyphs.characters import FIVE, GLYPHS_100, PRETRAINING, STYLED_50, VALIDATION
from promptpool.data.glyphs.drawing import in_chunks
from promptpool.data.glyphs.shapes import draw, tiles
from promptpool.data.glyphs.styles import STYLES, styled
from promptpool.data.scenarios import LabelledSet, class_incremental, domain_incremental
from promptpool.data.stream import Examples
from promptpool.files import cache_folder

DOWNSTREAM = "".join(sorted(set(GLYPHS_100 + STYLED_50 + "".join(FIVE.values()))))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTPOOL_CACHE", str(tmp_path))


def pixels(part: Examples) -> npt.NDArray[np.uint8]:
    return part.batch(slice(None)).x.numpy()


def digest(*parts: Examples) -> str:
    return hashlib.sha256(b"".join(pixels(part).tobytes() for part in parts)).hexdigest()[:16]


def test_small_draws_have_the_expected_bytes() -> None:
    hundred = glyphs100(train_per_class=2, test_per_class=1)
    styles = glyph_styles(train_per_class=1, test_per_class=1)
    five = glyph_five(train_per_class=2, test_per_class=1)
    assert digest(hundred.train, hundred.test) == "1b667b7e0ad4e355"
    assert digest(*styles.domains, styles.test) == "e227b2bf3cd86905"
    assert digest(five.train, five.test) == "b23a9b1f09306099"


def test_a_seed_gives_the_same_images_and_another_seed_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = digest(glyphs100(train_per_class=1, test_per_class=1).train)
    monkeypatch.setenv("PROMPTPOOL_CACHE", str(tmp_path / "elsewhere"))
    assert digest(glyphs100(train_per_class=1, test_per_class=1).train) == first
    assert digest(glyphs100(train_per_class=1, test_per_class=1, seed=1).train) != first


def test_an_image_does_not_depend_on_how_many_are_drawn() -> None:
    few, more = glyphs100(train_per_class=1, test_per_class=1), glyphs100(train_per_class=3, test_per_class=2)
    assert np.array_equal(pixels(few.train), pixels(more.train)[::3])
    assert np.array_equal(pixels(few.test), pixels(more.test)[::2])


@pytest.mark.parametrize(("make", "classes"), [(glyphs100, 100), (glyph_five, 50)])
def test_shapes_counts_and_labels(make: Callable[..., LabelledSet], classes: int) -> None:
    train, test, names, _ = make(train_per_class=3, test_per_class=2)
    assert pixels(train).shape == (3 * classes, 3, 32, 32)
    assert pixels(train).dtype == np.uint8
    assert train.y.bincount().tolist() == [3] * classes
    assert test.y.bincount().tolist() == [2] * classes
    assert len(names) == len(set(names)) == classes
    assert len(class_incremental(train, test, names, tasks=5).experiences) == 5


def test_styles_are_eight_domains_and_one_test_set_of_three_others() -> None:
    made = glyph_styles(train_per_class=1, test_per_class=2)
    assert [len(domain) for domain in made.domains] == [50] * 8
    assert made.test.y.bincount().tolist() == [6] * 50
    stream = domain_incremental(*made)
    assert len(stream.experiences) == 8
    assert len(stream.class_names) == len(set(stream.class_names)) == 50


@pytest.mark.parametrize("make", [glyphs100, glyph_five])
def test_train_and_test_images_are_disjoint(
    make: Callable[..., LabelledSet],
) -> None:
    train, test, *_ = make(train_per_class=5, test_per_class=5)
    seen = [image.tobytes() for image in (*pixels(train), *pixels(test))]
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"train_per_class": 0}, "train_per_class = 0: must be at least 1"),
        ({"test_per_class": -1}, "test_per_class = -1: must be at least 1"),
        ({"seed": -2}, "seed = -2: must be at least 0"),
    ],
)
def test_impossible_numbers_are_refused(keywords: dict[str, int], message: str) -> None:
    for make in (glyphs100, glyph_styles, glyph_five):
        with pytest.raises(ValueError, match=message):
            make(**keywords)


def family(character: str) -> set[str]:
    """The character without accents and embellishments, in every case."""
    plain = unicodedata.normalize("NFKD", character)[0]
    with contextlib.suppress(KeyError):
        plain = unicodedata.lookup(unicodedata.name(plain).split(" WITH ")[0])
    return {plain, character} | {form for c in (plain, character) for form in (c.lower(), c.upper(), c.casefold())}


def shapes(characters: str) -> npt.NDArray[np.float64]:
    """Every upright drawing of the characters, blurred, as rows of mean 0 and length 1."""
    drawn = [draw(c, font) for c in characters for font in ("DejaVuSans", "DejaVuSerif", "STIXGeneral")]
    rows = np.stack([tile for tile in drawn if tile is not None]).astype(np.float64)
    rows = rows.reshape(len(rows), 32, 2, 32, 2).mean(axis=(2, 4))
    for axis in (1, 2):
        for _ in range(2):
            rows = (np.roll(rows, 1, axis) + 2 * rows + np.roll(rows, -1, axis)) / 4
    rows = rows.reshape(len(rows), -1)
    rows = rows - rows.mean(axis=1, keepdims=True)
    lengths: npt.NDArray[np.float64] = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: npt.NDArray[np.float64] = rows / lengths
    return scaled


@pytest.mark.parametrize("others", [PRETRAINING, VALIDATION], ids=["pretraining", "validation"])
def test_no_class_of_a_set_nor_one_like_it_is_used_for_pretraining(others: str) -> None:
    assert len(others) == len(set(others))
    known = {form for character in DOWNSTREAM for form in family(character)}
    assert not {character for character in others if family(character) & known}
    cases = "".join(form for form in sorted(known) if len(form) == 1)
    assert (shapes(others) @ shapes(cases).T).max() < 0.85


def test_pretraining_has_many_characters_and_validation_none_of_them() -> None:
    assert len(PRETRAINING) >= 300
    assert not {form for c in VALIDATION for form in family(c)} & {form for c in PRETRAINING for form in family(c)}


@pytest.mark.parametrize("characters", [GLYPHS_100, STYLED_50, *FIVE.values()], ids=["hundred", "styles", *FIVE])
def test_no_two_classes_of_a_set_are_cases_of_one_letter(characters: str) -> None:
    assert len({character.casefold() for character in characters}) == len(characters)


def test_a_corrupt_cache_file_is_drawn_again() -> None:
    small = partial(glyph_five, train_per_class=1, test_per_class=1)
    expected = digest(small().train)
    (file,) = cache_folder().rglob("*.safetensors")
    whole = file.read_bytes()
    flipped = bytearray(whole)
    flipped[-1] ^= 255
    for broken in (b"", whole[:100], whole[:-1], bytes(flipped), b"\xff" * 64):
        file.write_bytes(broken)
        assert digest(small().train) == expected
        assert file.read_bytes() == whole


def test_writers_at_the_same_time_leave_one_whole_file() -> None:
    images = {"train": np.arange(30000, dtype=np.uint8)}
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: cached("set", {"seed": 0}, lambda: images)["train"], range(40)))
    assert all(np.array_equal(one, images["train"]) for one in found)
    assert len([path for path in cache_folder().rglob("*") if path.is_file()]) == 1


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PROMPTPOOL_CACHE", str(tmp_path / "file"))
    assert len(glyph_five(train_per_class=1, test_per_class=1).train) == 50


def test_a_linear_classifier_on_pixels_fails() -> None:
    train, test, *_ = glyphs100(train_per_class=20, test_per_class=10)
    x, wanted = (
        torch.from_numpy(pixels(train)).flatten(1) / 255,
        torch.from_numpy(pixels(test)).flatten(1) / 255,
    )
    weight, bias = torch.zeros(100, 3072, requires_grad=True), torch.zeros(100, requires_grad=True)
    optimiser = torch.optim.Adam([weight, bias], lr=1e-3)
    for _ in range(60):
        optimiser.zero_grad()
        torch.autograd.backward(F.cross_entropy(F.linear(x - 0.5, weight, bias), train.y))
        optimiser.step()
    right = F.linear(wanted - 0.5, weight, bias).argmax(1) == test.y
    assert float(right.float().mean()) < 0.15


def test_styles_are_told_apart_by_their_colours_alone() -> None:
    labels = np.arange(200) % 50
    found = []
    for number, style in enumerate(STYLES.values()):
        keys = [(number, i) for i in range(200)]
        images = in_chunks(labels, keys, partial(styled, style, tiles(STYLED_50))) // 64
        codes = (images[:, 0] * 16 + images[:, 1] * 4 + images[:, 2]).reshape(200, -1)
        found.append(np.stack([np.bincount(code, minlength=64) for code in codes]) / codes.shape[1])
    histograms = np.sqrt(np.stack(found))  # [11, 200, 64]
    means = histograms[:, :100].mean(axis=1)
    nearest = (histograms[:, 100:] @ means.T).argmax(axis=2)
    assert (nearest == np.arange(len(STYLES))[:, None]).mean() > 0.6
