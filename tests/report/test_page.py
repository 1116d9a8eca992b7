from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from parsed_page import Parsed
from promptpool.report.report import write_report
from report_runs import EVIL, STREAM, made_run, several, toy_run


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    return write_report(several(folder / "runs"), folder / "out")


@pytest.fixture(scope="module")
def parsed(report: Path) -> Parsed:
    return Parsed(report.read_text(encoding="utf-8"))


def test_nothing_is_fetched_and_nothing_runs(report: Path, parsed: Parsed) -> None:
    for tag, attributes in parsed.found:
        assert tag not in {"script", "iframe", "object", "embed", "form", "base"}
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "srcset", "href", "poster", "action", "data"):
            assert (attributes.get(name) or "#").startswith(("data:", "#"))
    text = report.read_text(encoding="utf-8")
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    policy = next(meta for meta in parsed.all("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    assert policy["content"] == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def test_names_are_shown_not_obeyed(parsed: Parsed) -> None:
    assert parsed.text.count(EVIL) >= 3  # the method in the table and at its run, and a class in the environment
    assert "script" not in {tag for tag, _ in parsed.found}


def test_pictures_come_in_both_themes_and_with_words(parsed: Parsed) -> None:
    pictures, sources, images = (parsed.all(tag) for tag in ("picture", "source", "img"))
    assert len(pictures) == len(sources) == len(images) > 10
    assert {source["media"] for source in sources} == {"(prefers-color-scheme: dark)"}
    assert all(source["srcset"] != image["src"] for source, image in zip(sources, images, strict=True))
    assert all(image["alt"] for image in images)
    assert len(parsed.all("figcaption")) == len(images)


def test_a_page_for_phones_and_both_themes(report: Path, parsed: Parsed) -> None:
    metas = {meta.get("name"): meta.get("content") for meta in parsed.all("meta")}
    assert metas["viewport"] == "width=device-width, initial-scale=1"
    assert metas["color-scheme"] == "light dark"
    assert "prefers-color-scheme: dark" in report.read_text(encoding="utf-8")
    assert parsed.all("html") == [{"lang": "en"}]
    assert len(parsed.all("h1")) == 1


def test_the_page_says_what_must_be_said(parsed: Parsed) -> None:
    for text in (
        "7 runs of 6 configurations on 2 streams. Only what ran on the same stream is compared.",
        "† Predictions depend on test batches",
        "FT-seq (1 of 3 experiences)",
        "Upper bound",
        "learner.pool_size",
        "seconds per experience",
    ):
        assert text in parsed.text


def test_every_colour_of_text_stands_out(report: Path) -> None:
    """Contrast of at least 4.5, as WCAG AA asks, for text on both grounds in both themes."""
    for block in re.findall(r":root \{(.*?)\}", report.read_text(encoding="utf-8"), re.DOTALL):
        colours = {name: _luminance(value) for name, value in re.findall(r"--(\w+): #(\w{6});", block)}
        for text, ground in (
            ("ink", "ground"),
            ("ink", "paper"),
            ("ink", "bar"),
            ("muted", "ground"),
            ("muted", "paper"),
        ):
            dark, light = sorted((colours[text], colours[ground]))
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, ground)


def _luminance(colour: str) -> float:
    shares = np.frombuffer(bytes.fromhex(colour), dtype=np.uint8) / 255
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_files_beside_the_page(report: Path) -> None:
    names = {path.name for path in report.parent.iterdir()}
    assert {"report.html", "table.md", "table.csv"} <= names
    for name in ("stream-1-accuracy", "stream-1-prompts-in-use", "accuracy-matrix-half", "prompts-chosen-l2p-0"):
        assert {f"{name}.png", f"{name}.svg"} <= names
    assert all(re.fullmatch(r"[a-z0-9.-]+", name) for name in names)
    pictures = {Path(name).stem for name in names if name.endswith(".png")}
    assert pictures == {Path(name).stem for name in names if name.endswith(".svg")}


def test_the_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    runs = [toy_run(tmp_path / "l2p", top_k=2)]
    first, second = (write_report(runs, tmp_path / name).parent for name in ("x", "y"))
    assert {path.name: path.read_bytes() for path in first.iterdir()} == {
        path.name: path.read_bytes() for path in second.iterdir()
    }


def test_runs_of_one_name_do_not_overwrite_each_other(tmp_path: Path) -> None:
    runs = [made_run(tmp_path / folder / "Run 1", seed=seed) for seed, folder in enumerate("ab")]
    out = write_report(runs, tmp_path / "out").parent
    assert len(list(out.glob("accuracy-matrix-*.png"))) == 2


def test_six_runs_of_ten_tasks_stay_small(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [[int(rng.integers(100)) if i <= t else None for i in range(10)] for t in range(10)]
    runs = []
    for seed in range(2):
        keys = rng.uniform(-1, 1, (10, 10)).round(3).tolist()
        chosen = rng.integers(0, 100, (10, 10)).tolist()
        facts = [{"key_similarity": keys, "chosen_in_tests": chosen, "prompts_in_use": 10} for _ in rows]
        runs.append(made_run(tmp_path / str(seed), rows, name=f"l2p-{seed}", facts=facts))
    page = write_report(runs, tmp_path / "out").read_text(encoding="utf-8")
    second = page[page.rindex('<details class="card') :]
    assert second.count("<picture>") == 3
    assert len(page) + 4 * len(second) < 1_900_000  # the curves of four more runs take less than 100,000


def test_a_report_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one run"):
        write_report([], tmp_path)


def test_a_run_that_has_just_begun_can_be_reported(tmp_path: Path) -> None:
    run = made_run(tmp_path / "a", [], environment={"experiences": 3, "stream": STREAM})
    assert "0 of 3 experiences" in write_report([run], tmp_path / "out").read_text(encoding="utf-8")
