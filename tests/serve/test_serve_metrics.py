"""Counts as Prometheus reads them."""

from __future__ import annotations

from promptpool.serve.metrics import Counter, Histogram, Metrics, UnknownShare


def test_a_histogram_counts_below_its_bounds() -> None:
    found = Histogram("seconds", "How long.", (0.5, 1.0), "route")
    for value in (0.5, 0.7, 3.0):
        found.observe(value, "/a")
    assert list(found.lines()) == [
        "# HELP seconds How long.",
        "# TYPE seconds histogram",
        'seconds_bucket{route="/a",le="0.5"} 1',
        'seconds_bucket{route="/a",le="1.0"} 2',
        'seconds_bucket{route="/a",le="+Inf"} 3',
        'seconds_sum{route="/a"} 4.2',
        'seconds_count{route="/a"} 3',
    ]


def test_labels_are_escaped() -> None:
    found = Counter("requests", "Requests.", ("route",))
    found.add('a"\\\n')
    assert list(found.lines())[-1] == r'requests{route="a\"\\\n"} 1'


def test_the_share_of_unknown_answers_is_kept_by_the_hour() -> None:
    share, hour = UnknownShare(), 3600.0
    share.note(10, 1, now=100 * hour)
    share.note(10, 3, now=100.9 * hour)
    share.note(4, 4, now=101 * hour)
    assert list(share.lines(now=101.5 * hour))[2:] == [
        'promptpool_unknown_share{hours_ago="0"} 1.0',
        'promptpool_unknown_share{hours_ago="1"} 0.2',
    ]
    share.note(1, 0, now=125 * hour)
    assert list(share.lines(now=125 * hour))[2:] == ['promptpool_unknown_share{hours_ago="0"} 0.0']
    assert len(share._hours) == 1


def test_pictures_that_are_none_are_no_unknown_answers() -> None:
    metrics = Metrics()
    metrics.note_answers(0, 0, 2)
    text = metrics.text({"classes": ("Classes.", 3)})
    assert 'promptpool_answers_total{answer="error"} 2' in text
    assert "hours_ago" not in text
    assert text.endswith("# HELP classes Classes.\n# TYPE classes gauge\nclasses 3\n")
