"""`promptpool weights`: what a person types, with files in the hub's layouts on a server of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from local_hub import Answer, Hub, serving_hub
from promptpool.backbones.known import KNOWN
from promptpool.cli import app
from promptpool.data import downloads
from published import random_vit, tensors_of, write_timm_folder, write_transformers

if TYPE_CHECKING:
    from typer.testing import Result

TINY, DINO = "timm/vit_tiny_patch16_224.augreg_in21k_ft_in1k", "facebook/dinov2-with-registers-small"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setenv("PROMPTPOOL_WEIGHTS", str(tmp_path / "weights"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(downloads, "PAUSES", (0.0,))
    monkeypatch.setattr(downloads, "TIMEOUT", 20.0)
    with serving_hub(tmp_path / "served") as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        write_timm_folder(server.model(TINY), tensors_of(random_vit(dim=64, heads=1)))
        write_transformers(server.model(DINO), random_vit(layer_scale=True, registers=4), crop=24)
        yield server


def weights(*arguments: str, columns: int = 100) -> Result:
    return CliRunner().invoke(app, ["weights", *arguments], env={"COLUMNS": str(columns)})


def only_line(result: Result) -> str:
    """The one line that is said when something cannot be done."""
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    return result.stderr.strip()


def section(result: Result, name: str) -> dict[str, str]:
    """What a list says of one name."""
    _, _, after = result.stdout.partition(f"\n{name}\n")
    rows: dict[str, str] = {}
    label = ""
    for line in after.split("\n\n")[0].splitlines():
        label = line[:10].strip() or label
        rows[label] = f"{rows.get(label, '')} {line[10:].strip()}".strip()
    return rows


def test_get(hub: Hub, tmp_path: Path) -> None:
    got = weights("get", DINO)
    folder = tmp_path / "weights" / DINO
    assert got.exit_code == 0
    licence, place, sizes = got.stdout.splitlines()
    assert licence.startswith(f"{DINO}: licence apache-2.0, ")
    assert licence.endswith(f"kB from https://huggingface.co/{DINO}")
    assert place == f"{DINO}: {folder} (licence: apache-2.0)"
    assert sizes == (
        f"{DINO}: width 48, 3 blocks, 4 registers, patches of 8, images of 24 px; backbone.name={DINO} uses it"
    )
    assert "model.safetensors: 0 % of" in got.stderr
    assert "model.safetensors: 100 % of" in got.stderr
    asked = len(hub.asked)
    again = weights("get", DINO, DINO)
    assert again.stdout.splitlines() == [place, sizes]
    assert len(hub.asked) == asked


def test_get_goes_on(hub: Hub, tmp_path: Path) -> None:
    part = tmp_path / "weights" / TINY / "model.safetensors.part"
    part.parent.mkdir(parents=True)
    part.write_bytes((hub.model(TINY) / "model.safetensors").read_bytes()[:1000])
    assert section(weights("list", columns=200), TINY)["here"] == (
        f"in part, 1.0 kB: promptpool weights get {TINY} goes on"
    )
    assert weights("get", TINY).exit_code == 0
    assert hub.ranges == ["bytes=1000-"] * 2  # of the hub, and of where it sends on to


@pytest.mark.usefixtures("hub")
def test_list(tmp_path: Path) -> None:
    before = weights("list")
    assert before.exit_code == 0
    assert f"weights, from https://huggingface.co/NAME, in {tmp_path / 'weights'}" in before.stdout
    for name, known in KNOWN.items():
        rows = section(before, name)
        assert rows["good for"] == known.good_for
        assert (rows["licence"], rows["here"]) == ("apache-2.0", "no")
        assert f"width {known.dim}, {known.depth} blocks" in rows["size"]
        assert rows["size"].endswith(f"{known.megabytes} MB")
    weights("get", TINY)
    rows = section(weights("list", columns=200), TINY)
    assert rows["size"] == "width 64, 3 blocks, patches of 8, images of 32 px"
    size, place = rows["here"].split(", ")
    assert size.endswith("kB")
    assert place == str(tmp_path / "weights" / TINY)


@pytest.mark.usefixtures("hub")
def test_the_list_fits_a_narrow_terminal() -> None:
    assert max(map(len, weights("list", columns=80).stdout.splitlines()[1:])) <= 80


def test_list_others_and_those_that_cannot_be_used(hub: Hub, tmp_path: Path) -> None:
    write_transformers(hub.model("owner/own"), random_vit(layer_scale=True))
    hub.card = {"license": "mit"}
    weights("get", "owner/own")
    rows = section(weights("list", columns=200), "owner/own")
    assert (rows["licence"], rows["size"]) == ("mit", "width 48, 3 blocks, patches of 8, images of 32 px")
    (tmp_path / "weights/owner/own/model.safetensors").write_bytes(b"damaged")
    assert "which cannot be used: " in section(weights("list", columns=300), "owner/own")["here"]


@pytest.mark.usefixtures("hub")
def test_a_name_that_is_not_there() -> None:
    assert only_line(weights("get", "dinov2-small")) == (
        "promptpool: 'dinov2-small': no name of the hub, which reads owner/name; did you mean facebook/dinov2-small?"
    )
    assert only_line(weights("get", "vit-glyphs")).endswith("comes with the package, there is nothing to get")
    assert only_line(weights("get", "facebook/dinov2-smal")).endswith("; did you mean facebook/dinov2-small?")


@pytest.mark.usefixtures("hub")
def test_without_a_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    said = only_line(weights("get", DINO))
    assert said.startswith(f"promptpool: {DINO}: the hub cannot be reached (Connection refused); download config.json")
    assert said.endswith(f"into {tmp_path / 'weights' / DINO}")
    assert weights("list").exit_code == 0


def test_a_gated_model_says_where_to_ask(hub: Hub) -> None:
    hub.gated = "auto"
    got = weights("get", DINO)
    assert got.exit_code == 2
    assert got.stdout.startswith(f"{DINO}: licence apache-2.0")
    assert got.stderr.startswith(f"promptpool: {DINO}: its owner asks for consent; give it at https://huggingface.co/")


def test_stopped_by_hand_and_gone_on_with(hub: Hub) -> None:
    plain = Answer.send

    def stopping(answer: Answer, file: Path, *, share: float = 1.0) -> None:
        plain(answer, file, share=0.5 if file.suffix == ".safetensors" else share)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Answer, "send", stopping)
        patch.setattr("time.sleep", _interrupt)
        stopped = weights("get", TINY)
    assert stopped.exit_code == 130
    assert "the same command goes on from here" in stopped.stderr
    assert weights("get", TINY).exit_code == 0
    assert hub.ranges


def _interrupt(_: float) -> None:
    raise KeyboardInterrupt


@pytest.mark.usefixtures("hub")
def test_a_run_takes_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dice = np.random.default_rng(0)
    for label in "abcd":
        (tmp_path / "pictures" / label).mkdir(parents=True)
        for number in range(5):
            pixels = dice.integers(0, 256, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pictures" / label / f"{number}.png")
    arguments = ["run", "own-l2p", "--data", str(tmp_path / "pictures"), f"backbone.name={DINO}"]
    ran = CliRunner().invoke(app, [*arguments, "plan.epochs=1", "plan.least_steps=0"])
    assert ran.exit_code == 0, ran.output
    (run,) = (tmp_path / "runs").iterdir()
    assert f'name = "{DINO}"' in (run / "config.toml").read_text()
    assert "0.485" in (run / "config.toml").read_text()
    assert (tmp_path / "weights" / DINO / "model.safetensors").is_file()


def test_the_list_of_backbones_leads_here() -> None:
    said = CliRunner().invoke(app, ["list", "backbones"], env={"COLUMNS": "200"}).stdout
    assert "promptpool weights list" in said
