"""A file of the wrong make gives one BadFileError that names it; nothing is run and nothing large is allocated."""

from __future__ import annotations

import io
import os
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from promptpool.backbones.weights import load_backbone
from promptpool.errors import BadFileError
from published import random_vit, refusal, tensors_of, write_official, write_timm


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".pth"])
@pytest.mark.parametrize("content", [b"", b"x", b"not a checkpoint at all\n" * 99, b"\x80\x02", b"PK\x03\x04"])
def test_a_file_that_is_no_checkpoint(suffix: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"weights{suffix}"
    path.write_bytes(content)
    refusal(path)


class Malicious:
    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.proof),)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_that_would_run_code_is_refused(zipped: bool, tmp_path: Path) -> None:
    torch.save({"model": Malicious(tmp_path / "proof")}, tmp_path / "w.pth", _use_new_zipfile_serialization=zipped)
    assert "could run code" in refusal(tmp_path / "w.pth")
    assert not (tmp_path / "proof").exists()


def test_an_npz_with_pickled_objects_is_refused(tmp_path: Path) -> None:
    objects = np.array([Malicious(tmp_path / "proof")], dtype=object)
    refusal(write_official(tmp_path / "w.npz", random_vit(), cls=objects))
    assert not (tmp_path / "proof").exists()


PICKLES: dict[str, object] = {
    "holds a list, expected a state dict": [1, 2],
    "holds a int under 'epoch'": {"epoch": 3},
    "holds a Tensor under '3'": {3: torch.ones(1)},
    "tensor w: torch.sparse_coo on cpu": {"w": torch.ones(2, 2).to_sparse()},
    "tensor w: fewer numbers stored than shape [1000000, 1000000] needs": {"w": torch.ones(1).expand(10**6, 10**6)},
}


@pytest.mark.parametrize(("expected", "content"), PICKLES.items())
def test_a_pickle_of_something_else(expected: str, content: object, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "w.pth")
    assert expected in refusal(tmp_path / "w.pth")


def test_an_array_that_is_shorter_than_its_header_says(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (10**12,)})
    with zipfile.ZipFile(tmp_path / "w.npz", "w") as file:
        file.writestr("cls.npy", header.getvalue())
    assert "tensor cls.npy: 0 bytes for shape [1000000000000], expected 4000000000000" in refusal(tmp_path / "w.npz")


@pytest.mark.parametrize("header", [b"{'descr': '<f4', (", b"-" * 5000 + b"1", b"'\x00'", b"\xff", b""])
def test_an_array_with_a_header_of_nonsense(header: bytes, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "w.npz", "w") as file:
        file.writestr("cls.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    refusal(tmp_path / "w.npz")


def test_an_array_alone_is_no_archive(tmp_path: Path) -> None:
    with (tmp_path / "w.npz").open("wb") as file:
        np.save(file, np.ones(3))
    refusal(tmp_path / "w.npz")


def damaged(content: bytes, seed: int) -> bytes:
    """Cut off somewhere, or with a few bytes changed, most of them where headers are."""
    draw = random.Random(seed)  # noqa: S311
    changed = bytearray(content)
    if seed % 3 == 0:
        return content[: draw.randrange(len(content))]
    for _ in range(draw.choice((1, 1, 2, 8))):
        near = draw.randrange(min(1500, len(content)))
        place = draw.choice((near, len(content) - 1 - near, draw.randrange(len(content))))
        changed[place] = draw.choice((0, 255, changed[place] ^ 1, draw.randrange(256)))
    return bytes(changed)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol:UserWarning")
@pytest.mark.parametrize("kind", ["official.npz", "timm.safetensors", "zipped.pth", "legacy.pth"])
def test_a_damaged_file_loads_or_is_refused(kind: str, tmp_path: Path) -> None:
    vit, path = random_vit(dim=64, heads=1), tmp_path / kind
    if kind == "official.npz":
        write_official(path, vit)
    elif kind == "timm.safetensors":
        write_timm(path, tensors_of(vit), heads="1")
    else:
        torch.save(tensors_of(vit), path, _use_new_zipfile_serialization=kind == "zipped.pth")
    load_backbone(path)
    content, loaded = path.read_bytes(), 0
    for seed in range(120):
        path.write_bytes(damaged(content, seed))
        try:
            load_backbone(path)
            loaded += 1
        except BadFileError:
            continue
    assert loaded < 120
