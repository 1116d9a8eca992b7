"""Work in advance: order, errors, and no thread left behind."""

from __future__ import annotations

import threading
import time

import pytest

from promptpool.data.workers import in_advance, threads_here


def alive() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("in-advance")]


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 20])
def test_results_come_in_order(threads: int, count: int) -> None:
    def slowly(item: int) -> int:
        time.sleep(0.002 * (item % 3))
        return item * item

    assert list(in_advance(slowly, range(count), threads=threads)) == [item * item for item in range(count)]
    assert alive() == []


def test_the_next_is_made_while_the_caller_has_the_present_one() -> None:
    started = [threading.Event() for _ in range(4)]

    def make(item: int) -> int:
        started[item].set()
        return item

    made = in_advance(make, range(4))
    assert next(made) == 0
    assert started[1].wait(5)
    assert not started[2].is_set(), "one ahead, no more"
    assert list(made) == [1, 2, 3]


def test_work_is_done_on_another_thread_and_items_are_taken_on_ours() -> None:
    here, took = threading.get_ident(), []

    def items() -> list[int]:
        took.append(threading.get_ident())
        return [1, 2]

    made = list(in_advance(lambda item: threading.get_ident(), (item for item in items())))
    assert here not in made
    assert took == [here]


def test_an_error_comes_where_its_result_would_have() -> None:
    def make(item: int) -> int:
        if item == 2:
            raise ValueError("the third")
        return item

    made = in_advance(make, range(5))
    assert [next(made), next(made)] == [0, 1]
    with pytest.raises(ValueError, match="the third"):
        next(made)
    assert alive() == []
    assert list(made) == []


def test_closing_leaves_no_thread_and_makes_no_more() -> None:
    made: list[int] = []
    running = in_advance(made.append, range(1000), threads=3)
    next(running)
    running.close()
    assert alive() == []
    assert len(made) <= 8


def test_a_caller_that_breaks_off_leaves_no_thread() -> None:
    for item in in_advance(str, range(100)):
        if item == "3":
            break
    assert alive() == []


def test_there_is_at_least_one_processor() -> None:
    assert 1 <= threads_here() <= 8
