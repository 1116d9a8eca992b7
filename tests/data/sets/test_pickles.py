"""Pickles are read without running code: what arrays and lists need, and nothing else."""

from __future__ import annotations

import pickle
import struct
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from array_files import Pickled, Python2, number
from damage import damaged, outcome
from promptpool.data.sets import pickles
from promptpool.data.sets.pickles import load
from promptpool.errors import BadFileError

ROWS = np.arange(24, dtype=np.uint8).reshape(4, 6)
BATCH: dict[bytes, Pickled] = {
    b"data": ROWS,
    b"labels": [3, 1, 0, 2],
    b"batch_label": b"training batch 1 of 5",
    b"filenames": [b"a", b"b"],
}


def refusal(content: bytes) -> str:
    with pytest.raises(BadFileError) as caught:
        load(content, "data_batch_1")
    message = str(caught.value)
    assert message.startswith("data_batch_1: ")
    assert "\n" not in message
    return message


def same(found: object, wanted: Mapping[bytes, object]) -> bool:
    assert isinstance(found, dict)
    assert list(found) == list(wanted)
    for key, value in wanted.items():
        np.testing.assert_array_equal(found[key], value)
        assert type(found[key]) is type(value)
        if isinstance(value, np.ndarray):
            assert found[key].dtype == value.dtype
    return True


@pytest.mark.parametrize("module", ["numpy.core.multiarray", "numpy._core.multiarray"])
def test_what_python_2_wrote(module: str) -> None:
    content = Python2(module).dumps(BATCH)
    assert same(load(content, "batch"), BATCH)
    assert same(pickle.loads(content, encoding="bytes"), BATCH)  # noqa: S301  # the test's own bytes are right


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_what_python_3_writes(protocol: int) -> None:
    assert same(load(pickle.dumps(BATCH, protocol), "batch"), BATCH)


def test_long_lists_come_in_batches_and_outgrow_the_short_memo() -> None:
    names = [b"image_%d.png" % index for index in range(2345)]
    found = load(Python2().dumps({b"filenames": names, b"labels": [*range(2345)]}), "batch")
    assert found == {b"filenames": names, b"labels": [*range(2345)]}


@pytest.mark.parametrize("kind", ["|u1", "<u2", ">u2", "<i4", ">i8", "<f4", ">f8", "|i1", "<f2"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_plain_number_type(kind: str, order: str) -> None:
    array = np.array(np.arange(6).reshape(2, 3), kind, order=order)  # type: ignore[call-overload]
    for content in (Python2().dumps({b"data": array}), pickle.dumps({b"data": array}, 2)):
        assert same(load(content, "batch"), {b"data": array})


def test_an_array_kept_and_asked_for_again_is_the_same() -> None:
    found = load(pickle.dumps({"a": ROWS, "b": ROWS}, 2), "batch")
    assert isinstance(found, dict)
    assert found["a"] is found["b"]


def test_long_numbers_and_plain_values() -> None:
    wanted: dict[bytes, object] = {b"a": -5, b"b": 2**40, b"c": True, b"d": None, b"e": b"", b"f": "é", b"g": []}
    assert load(pickle.dumps(wanted, 3), "batch") == wanted


MKDIR = b"posix\nmkdir\n"


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def short(value: str) -> bytes:
    return b"\x8c" + bytes([len(value)]) + value.encode()


LIVE: dict[str, Callable[[str], bytes]] = {
    "GLOBAL and REDUCE": lambda proof: b"\x80\x02c" + MKDIR + text(proof) + b"\x85R.",
    "STACK_GLOBAL": lambda proof: b"\x80\x04" + short("posix") + short("mkdir") + b"\x93" + text(proof) + b"\x85R.",
    "INST": lambda proof: b"(" + text(proof) + b"i" + MKDIR + b".",
    "OBJ": lambda proof: b"(c" + MKDIR + text(proof) + b"o.",
    "within a dict": lambda proof: b"\x80\x02}U\x04datac" + MKDIR + text(proof) + b"\x85Rs.",
    "before what is asked for": lambda proof: b"\x80\x02c" + MKDIR + text(proof) + b"\x85R0}.",
    "by __import__": lambda proof: (
        b"\x80\x02c__builtin__\ngetattr\nc__builtin__\n__import__\nU\x05posix\x85RU\x05mkdir\x86R"
        + text(proof)
        + b"\x85R."
    ),
    "BUILD and __setstate__": lambda proof: (
        b"\x80\x02ccollections\nUserDict\n)\x81}X\x0c\x00\x00\x00__setstate__c" + MKDIR + b"sb" + text(proof) + b"b."
    ),
}


@pytest.mark.parametrize("way", LIVE)
def test_a_pickle_that_runs_code_is_refused_and_does_nothing(way: str, tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    content = LIVE[way](str(proof))
    pickle.loads(content)  # noqa: S301  # shows that the attack is a real one
    proof.rmdir()
    refusal(content)
    assert not proof.exists()


DEAD = {
    "NEWOBJ": b"\x80\x02csubprocess\nPopen\n)\x81.",
    "NEWOBJ of an array": b"\x80\x02cnumpy\nndarray\nK\x02\x85\x81.",
    "NEWOBJ_EX": b"\x80\x04cnumpy\nndarray\n)}\x92.",
    "a persistent id": b"Pproof\n.",
    "a persistent id on the stack": b"\x80\x02U\x01aQ.",
    "an extension": b"\x80\x02\x82\x01.",
    "a buffer from outside": b"\x80\x05\x97.",
    "a name alone": b"\x80\x02cnumpy\nndarray\n.",
    "another name of numpy": b"\x80\x02cnumpy.core.multiarray\nscalar\n.",
    "a dotted name": b"\x80\x04\x8c\x05numpy\x8c\x10ndarray.__init__\x93.",
    "a name in two words": b"\x80\x02cnumpy ndarray\n\n.",
    "a name that is no text": b"\x80\x04K\x01K\x02\x93.",
    "a list that is called": b"\x80\x02])R.",
    "an array of ten thousand million": b"\x80\x02cnumpy\nndarray\nJ\x00\xe4\x0bT\x85R.",
    "another class as an array": b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\ndtype\nK\x00\x85U\x01b\x87R.",
    "objects as numbers": b"\x80\x02cnumpy\ndtype\nU\x02O8K\x00K\x01\x87R.",
    "records as numbers": b"\x80\x02cnumpy\ndtype\nU\x03V99K\x00K\x01\x87R.",
    "strings as numbers": b"\x80\x02cnumpy\ndtype\nU\x0bS2000000000K\x00K\x01\x87R.",
    "a list as a type": b"\x80\x02cnumpy\ndtype\n](U\x01aU\x02u1eK\x00K\x01\x87R.",
    "metadata": b"\x80\x02cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x04U\x01|NNN"
    + b"J\xff\xff\xff\xff" * 2
    + b"K\x00}tb.",
    "another codec": b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R.",
    "a string beyond Latin-1": b"\x80\x02c_codecs\nencode\nX\x03\x00\x00\x00\xe2\x82\xacX\x06\x00\x00\x00latin1\x86R.",
    "no text": b"\x80\x02X\x02\x00\x00\x00\xff\xfe.",
    "an array never filled": b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R.",
    "a state for a list": b"\x80\x02]}b.",
    "a state for a name": b"\x80\x02cnumpy\ndtype\n}U\x06_makesK\x01sb.",
    "a state of attributes for a name": b"\x80\x02c_codecs\nencode\nN}X\x06\x00\x00\x00_makesK\x01s\x86b.",
    "half of a pair of surrogates": b"\x80\x02}U\x01aX\x03\x00\x00\x00\xed\xa0\x80s.",
    "a number of more than 64 bits": b"\x80\x02}U\x01a\x8a\x09" + bytes(8) + b"\x01s.",
    "a number as a key": b"\x80\x02}K\x01K\x01s.",
    "a list as a key": b"\x80\x02}]K\x01s.",
    "a key without a value": b"\x80\x02}(U\x01au.",
    "a list in itself": b"\x80\x02]q\x00h\x00a.",
    "a dict in itself": b"\x80\x02}q\x00U\x01ah\x00s.",
    "appending to a number": b"\x80\x02K\x01K\x01a.",
    "an item for a list": b"\x80\x02]U\x01aK\x01s.",
    "nothing kept": b"\x80\x02h\x07.",
    "no mark": b"\x80\x02]K\x01e.",
    "nothing there": b"\x80\x02.",
    "two values": b"\x80\x02K\x01K\x02.",
    "a mark left over": b"\x80\x02(K\x01.",
    "more behind the end": b"\x80\x02K\x01.K\x01.",
    "a float": b"\x80\x02G\x00\x00\x00\x00\x00\x00\x00\x00.",
    "a number as text": b"I1\n.",
    "a set": b"\x80\x04\x8f.",
    "an unknown instruction": b"\x80\x02\xff.",
    "a tuple alone": b"\x80\x02K\x01\x85.",
    "a tuple of tuples of tuples": b"\x80\x02)\x85\x85\x85.",
    "empty": b"",
}


@pytest.mark.parametrize("way", DEAD)
def test_anything_else_is_refused(way: str) -> None:
    refusal(DEAD[way])


def test_the_refusal_names_what_was_asked_for() -> None:
    assert "'posix mkdir', which could run code" in refusal(b"\x80\x02c" + MKDIR + b")R.")
    assert "instruction PERSID at byte 0" in refusal(b"P1\n.")
    assert len(refusal(b"\x80\x04" + short("m" * 250) + short("n" * 250) + b"\x93.")) < 250


def long(length: int) -> bytes:
    return struct.pack("<q", length)


ENCODED = b"c_codecs\nencode\nq\x00X" + struct.pack("<I", 2**20) + b"a" * 2**20 + b"q\x01X\x06\x00\x00\x00latin1q\x02"
BOMBS = {
    "deep lists": b"\x80\x02" + b"]" * 20000 + b"a" * (20000 - 1) + b".",
    "deep tuples": b"\x80\x02)" + b"\x85" * 20000 + b".",
    "deep dicts": b"\x80\x02" + b"}U\x01a" * 20000 + b"}" + b"s" * 20000 + b".",
    "marks": b"\x80\x02" + b"(" * 4_000_000 + b".",
    "a memo that begins at four thousand million": b"\x80\x02]r\xff\xff\xff\xff" + b"]" * 10 + b".",
    "a string of two thousand million": b"\x80\x02T\xff\xff\xff\x7f.",
    "a string of less than nothing": b"\x80\x02T\xff\xff\xff\xff.",
    "bytes of nine million million million": b"\x80\x04\x8e" + long(2**63 - 1) + b".",
    "text of nine million million million": b"\x80\x04\x8d" + long(2**63 - 1) + b".",
    "a number of 255 bytes": b"\x80\x02\x8a\xff\x01.",
    "a string encoded again and again": b"\x80\x02](" + ENCODED + b"\x86R" + b"h\x00h\x01h\x02\x86R" * 1000 + b"e.",
    "a long tuple": b"\x80\x02(" + b"K\x01" * 20000 + b"t.",
    "tuples whose hash overflows the stack": b"\x80\x02})" + b"\x85" * 1_000_000 + b"K\x01s.",
    "the same, each kept and recalled": b"\x80\x02})" + b"\x85q\x00h\x00" * 300_000 + b"K\x01s.",
}


@pytest.mark.parametrize("way", BOMBS)
def test_a_bomb_is_refused_in_little_memory(way: str) -> None:
    tracemalloc.start()
    try:
        refusal(BOMBS[way])
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shape", [(2**31 - 1, 2**31 - 1), (2**62, 4), (-1, -24), (24, 1, 2), (5, 5), (2**62, 0), ()])
def test_a_shape_that_does_not_fit_its_bytes(shape: tuple[int, ...]) -> None:
    right = b"(" + number(4) + number(6) + b"t"
    wrong = b"(" + b"".join(number(size) for size in shape) + b"t"
    content = Python2().dumps({b"data": ROWS})
    assert right in content
    assert "shape" in refusal(content.replace(right, wrong))


def test_too_many_instructions_and_too_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "MOST_STEPS", 1000)
    assert "more than 1000 instructions" in refusal(b"\x80\x02" + b"N" * 1000 + b".")
    monkeypatch.setattr(pickles, "LARGEST_PICKLE", 100)
    assert "101 bytes" in refusal(b"N" * 101)


@pytest.mark.parametrize("content", [Python2().dumps(BATCH), pickle.dumps(BATCH, 2), pickle.dumps(BATCH, 4)])
def test_every_truncation_is_refused(content: bytes) -> None:
    for end in range(len(content)):
        refusal(content[:end])


@pytest.mark.parametrize("seed", range(4))
def test_damage_ends_in_a_value_or_a_refusal(seed: int) -> None:
    contents = [Python2().dumps(BATCH), pickle.dumps(BATCH, 2), pickle.dumps(BATCH, 3), pickle.dumps(BATCH, 4)]
    for content in damaged(contents[seed], 1500, seed):
        outcome(load, content, "batch")
