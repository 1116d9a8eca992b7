"""Shared keywords are stated once, and a signature lists them as if each learner had written them out."""

from __future__ import annotations

import inspect

import pytest

from promptpool.learners import LEARNERS
from promptpool.learners.base import Learner
from promptpool.learners.keywords import Shared
from promptpool.learners.l2p import L2P
from promptpool.learners.nearest_mean import NearestMean
from toys import VIEW, toy_backbone

SHARED = ["loss_classes", "head_start", "train_backbone", "train_embedding", "seed"]


def keywords(method: object) -> dict[str, tuple[object, object]]:
    parameters = inspect.signature(method).parameters.values()  # type: ignore[arg-type]
    return {p.name: (p.annotation, p.default) for p in parameters if p.kind is p.KEYWORD_ONLY}


def test_a_signature_lists_the_shared_keywords_last_with_type_and_default() -> None:
    assert list(keywords(Learner)) == SHARED
    assert keywords(Learner)["seed"] == (int, 0)
    assert list(keywords(L2P))[-len(SHARED) :] == SHARED
    assert keywords(L2P)["train_backbone"] == (bool, False)
    assert keywords(L2P)["pool_size"] == (int, 10)
    assert list(keywords(NearestMean)) == ["distance", "readout_blocks", "readout_rows", "seed"]


def test_defaults_are_those_of_the_class() -> None:
    found = {name: keywords(method) for name, method in LEARNERS.items()}
    classes = {name: own["loss_classes"] for name, own in found.items() if "loss_classes" in own}
    expected = {"bic": "seen", "gdumb": "seen", "l2p": "current", "l2p-r": "current", "lwf": "current"}
    expected["masked-linear"] = "current"
    assert {name: default for name, (_, default) in classes.items() if default != "all"} == expected
    assert L2P(toy_backbone(), VIEW).loss_classes == "current"
    assert L2P(toy_backbone(), VIEW, loss_classes="seen").loss_classes == "seen"


def test_a_subclass_inherits_the_defaults_it_does_not_change() -> None:
    class Patient(L2P):
        defaults = {**L2P.defaults, "seed": 7}  # noqa: RUF012

    assert keywords(Patient)["loss_classes"] == (str, "current")
    assert Patient(toy_backbone(), VIEW).settings()["seed"] == 7


def test_every_shared_keyword_has_a_default() -> None:
    assert list(Shared.__annotations__) == list(Learner.defaults) == SHARED
    with pytest.raises(TypeError, match="unexpected keyword argument 'frozen'"):
        LEARNERS["ft-seq"](toy_backbone(), VIEW, frozen=None)
