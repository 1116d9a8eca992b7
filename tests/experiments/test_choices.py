"""Which values are worth it, by timings that are made up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from promptpool.cli.tune import advice, remarks
from promptpool.experiments.choices import (
    Choice,
    Images,
    Timing,
    Trial,
    alternatives,
    best,
    gain,
    is_worth_it,
    made_to_fit,
    smaller,
    together,
)
from promptpool.experiments.trials import Outcome

USUAL = Choice(threads=2, test_batch_size=128)
ROUNDED = replace(USUAL, precision="bfloat16")
IMAGES = Images(trained=1000, tested=500)
ROOM = 4 * 2**30
EVERYWHERE = {"transformer": True, "cpu": True, "compiler": True}


def trial(choice: Choice, training: Sequence[float], evaluation: float = 1.0, loss: float = 2.0) -> Trial:
    return Trial(choice, [Timing(seconds, evaluation) for seconds in training], (loss,), 2**30)


def outcome(trials: list[Trial]) -> Outcome:
    needed = None if trials[0].fits(ROOM) else trials[0].needed
    return Outcome(trials, best(trials[1:], trials[0], IMAGES, ROOM), IMAGES, 8, needed, ROOM, [])


def needing(gigabytes: float, found: Trial) -> Trial:
    """The same trial, of which a step needs so much memory."""
    return replace(found, needed=round(gigabytes * 2**30))


def test_each_choice_differs_by_one_value() -> None:
    found = list(alternatives(USUAL, threads=[1, 2], tests=200, transformer=True, cpu=True, compiler=True))
    assert [choice.named(USUAL) for choice in found] == [
        "backbone.precision=bfloat16",
        "backbone.products=onednn",
        "1 thread",
        "plan.test_batch_size=32",
        "backbone.compile=true",
    ]
    found = list(alternatives(USUAL, threads=[], tests=20, transformer=True, cpu=False, compiler=False))
    assert [choice.named(USUAL) for choice in found] == ["backbone.precision=bfloat16"]
    found = list(alternatives(USUAL, threads=[2], tests=20, transformer=False, cpu=True, compiler=False))
    assert found == []
    assert USUAL.named(USUAL) == "as it is"


def test_a_gain_is_that_of_the_whole_run() -> None:
    usual = trial(USUAL, [1.0, 1.0, 2.0])
    faster = trial(ROUNDED, [0.5, 0.5, 1.0])
    assert gain(faster, usual, IMAGES) == pytest.approx(1500 / 1000)
    assert gain(faster, usual, Images(trained=0, tested=500)) == 1


@pytest.mark.parametrize(
    ("training", "loss", "worth"),
    [
        ([0.5, 0.5, 0.5, 0.5], 2.0, True),
        ([0.97, 0.97, 0.97, 0.97], 2.0, False),  # too little
        ([0.5, 0.5, 1.1, 1.1], 2.0, False),  # not surely
        ([0.5, 0.5, 0.5, 0.5], 2.1, False),  # another loss
    ],
)
def test_a_value_is_worth_it_if_it_is_surely_faster_and_the_loss_stays(
    training: list[float], loss: float, worth: bool
) -> None:
    assert is_worth_it(trial(ROUNDED, training, loss=loss), trial(USUAL, [1.0] * 4), IMAGES) is worth


def test_values_that_are_worth_it_go_together_and_the_faster_of_two_for_one_value() -> None:
    usual = trial(USUAL, [1.0] * 4)
    others = [
        trial(ROUNDED, [0.5] * 4),
        trial(replace(USUAL, threads=4), [0.4] * 4),
        trial(replace(USUAL, threads=1), [0.6] * 4),
        trial(replace(USUAL, compile=True), [1.5] * 4),
    ]
    assert together(others, usual, IMAGES) == replace(USUAL, precision="bfloat16", threads=4)
    assert best(others, usual, IMAGES) is others[1]
    assert best(others[3:], usual, IMAGES) is usual
    assert together(others[3:], usual, IMAGES) == USUAL


@pytest.mark.parametrize("code", [replace(USUAL, compile=True), ROUNDED])
@pytest.mark.parametrize(("by_onednn", "by_code"), [(0.4, 0.5), (0.5, 0.4)])
def test_products_of_another_library_go_with_plain_code_of_single_precision_alone(
    code: Choice, by_onednn: float, by_code: float
) -> None:
    usual, other = trial(USUAL, [1.0] * 4), replace(USUAL, products="onednn")
    found = together([trial(other, [by_onednn] * 4), trial(code, [by_code] * 4)], usual, IMAGES)
    assert found == (other if by_onednn < by_code else code)
    words = [choice.words(code) for choice in alternatives(code, threads=[], tests=1, **EVERYWHERE)]
    assert ["backbone.products=onednn"] not in words
    words = [choice.words(other) for choice in alternatives(other, threads=[], tests=1, **EVERYWHERE)]
    assert words == [["backbone.precision=bfloat16", "backbone.products=torch"]]


def test_a_step_that_does_not_fit_is_taken_in_parts_or_computed_twice() -> None:
    found = list(smaller(USUAL, 128, 0.3, splits=True, transformer=True))
    assert [choice.words(USUAL) for choice in found] == [["plan.micro_batch=32"], ["backbone.checkpointing=true"]]
    assert [choice.micro_batch for choice in smaller(USUAL, 128, 0.0, splits=True, transformer=False)] == [1]
    assert list(smaller(USUAL, 128, 0.3, splits=False, transformer=False)) == []


def test_a_trial_is_held_beside_the_usual_of_its_own_rounds() -> None:
    usual = trial(USUAL, [1.0] * 4 + [2.0] * 4)
    later = replace(trial(ROUNDED, [2.0] * 4), begin=4)
    assert gain(later, usual, IMAGES) == 1.0
    assert not is_worth_it(trial(ROUNDED, [1.0] * 4), usual, IMAGES)


def test_advice_is_what_to_type() -> None:
    usual = trial(USUAL, [1.0] * 4)
    faster = trial(replace(ROUNDED, threads=4), [0.5] * 4)
    assert advice(outcome([usual, faster]), ["glyphs100-l2p", "seed=1"]) == (
        "use, for a run 1.5 times as fast: "
        "OMP_NUM_THREADS=4 promptpool run glyphs100-l2p seed=1 backbone.precision=bfloat16"
    )
    assert advice(outcome([usual, trial(ROUNDED, [1.0] * 4)]), ["glyphs100-l2p"]) == (
        "nothing that was tried is worth it: promptpool run glyphs100-l2p"
    )


SHORT = "memory is short, a step needs about 5.0 GiB of the 4.0 GiB there are"


def test_where_memory_is_short_the_first_value_that_fits_is_advised() -> None:
    usual = needing(5, trial(USUAL, [1.0] * 4))
    parts = needing(3.5, trial(replace(USUAL, micro_batch=64), [1.05] * 4))
    again = needing(2, trial(replace(USUAL, checkpointing=True), [1.4] * 4))
    assert advice(outcome([usual, parts, again]), ["glyphs100-l2p"]) == (
        f"{SHORT}: promptpool run glyphs100-l2p backbone.checkpointing=true"
    )
    parts = needing(3, parts)
    assert advice(outcome([usual, parts, again]), ["glyphs100-l2p"]) == (
        f"{SHORT}: promptpool run glyphs100-l2p plan.micro_batch=64"
    )


def test_where_memory_is_short_what_is_faster_goes_with_it() -> None:
    usual = needing(5, trial(USUAL, [1.0] * 4))
    faster = needing(5, trial(replace(USUAL, products="onednn"), [0.5] * 4))
    parts = needing(3, trial(replace(USUAL, micro_batch=32), [1.1] * 4))
    others = [faster, parts]
    chosen = made_to_fit(together(others, usual, IMAGES), others, usual, ROOM)
    assert chosen == replace(USUAL, products="onednn", micro_batch=32)
    assert made_to_fit(USUAL, others, needing(3, usual), ROOM) == USUAL
    joint = needing(3, trial(chosen, [0.55] * 4))
    assert best([*others, joint], usual, IMAGES, ROOM) is joint
    assert best(others, usual, IMAGES, ROOM) is parts  # though the other is faster
    small = needing(2.5, trial(ROUNDED, [0.5] * 4))
    assert best([*others, joint, small], usual, IMAGES, ROOM) is small  # fits by itself


def test_where_nothing_fits_that_is_said() -> None:
    left = "; nothing that was tried fits, and a smaller plan.batch_size takes less, but learns otherwise"
    usual = needing(5, trial(USUAL, [1.0] * 4))
    assert advice(outcome([usual]), ["glyphs100-co2l"]) == f"{SHORT}{left}: promptpool run glyphs100-co2l"
    faster = needing(4.9, trial(replace(USUAL, threads=1), [0.5] * 4))
    assert advice(outcome([usual, faster]), ["glyphs100-co2l"]) == (
        f"{SHORT}{left}: OMP_NUM_THREADS=1 promptpool run glyphs100-co2l"
    )


def test_blocks_are_compiled_once_in_a_run() -> None:
    usual = trial(USUAL, [1.0] * 4)
    compiled = replace(trial(replace(USUAL, compile=True), [0.8] * 4), compiling=60.0)
    assert gain(compiled, usual, IMAGES) == pytest.approx(1500 / 1360)
    short_run = Images(trained=100, tested=50)
    assert gain(compiled, usual, short_run) == pytest.approx(150 / 190)
    assert best([compiled], usual, short_run) is usual
    assert gain(compiled, replace(usual, compiling=60.0), short_run) == pytest.approx(210 / 190)
    said = remarks(outcome([usual, compiled]), None)[1]
    assert said == (
        "a run is all its training and tests here, and about 60 seconds to compile where it does; "
        "a first pass for queries and tokens is left out"
    )


def test_a_busy_machine_and_another_loss_are_named() -> None:
    far = trial(ROUNDED, [0.5] * 4, loss=3.0)
    found = remarks(outcome([trial(USUAL, [1.0] * 4), far]), 0.61)
    assert found[0] == "measured in steps of 8 images, 4 rounds"
    assert "compile" not in found[1]
    assert found[2].startswith("note: the machine is busy, others take 61% of it: ")
    assert found[3] == "not advised: backbone.precision=bfloat16, with which the loss differs by 50 %"


def test_what_was_faster_in_some_rounds_only_is_named() -> None:
    unsure = trial(ROUNDED, [0.5, 0.5, 0.8, 1.1, 1.2, 0.5])
    found = remarks(outcome([trial(USUAL, [1.0] * 6), unsure]), None)
    assert found[2:] == ["not advised: backbone.precision=bfloat16, faster in 4 of 6 rounds only"]


def test_a_method_without_a_loss_has_no_difference() -> None:
    assert Trial(USUAL).difference(Trial(USUAL)) is None
