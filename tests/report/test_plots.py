from __future__ import annotations

import io
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from promptpool.report import drawing, plots
from promptpool.report.themes import THEMES, png, svg
from promptpool.training.run_folder import Run
from report_runs import TASKS, made_run, toy_run


def curve(figure: Figure | None, place: int) -> list[float]:
    """The values of a curve; each is followed by the line that leads to its name."""
    assert figure is not None
    return [float(value) for value in np.asarray(figure.axes[0].lines[place].get_ydata())]


def texts(figure: Figure | None) -> list[str]:
    assert figure is not None
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_accuracy_over_time_is_the_mean_of_what_was_seen(tmp_path: Path) -> None:
    figure = plots.accuracy_over_time({"ft-seq": [made_run(tmp_path / "a")]})
    assert curve(figure, 0) == pytest.approx([90, 70, 160 / 3])
    assert texts(figure) == ["ft-seq"]


def test_seeds_are_a_mean_with_a_band(tmp_path: Path) -> None:
    runs = [made_run(tmp_path / str(end), ((end, None), (end, end)), seed=end) for end in (40, 50, 60)]
    figure = plots.accuracy_over_time({"a": runs})
    assert curve(figure, 0) == pytest.approx([50, 50])
    assert figure is not None
    band = np.asarray(figure.axes[0].collections[0].get_paths()[0].vertices)
    assert (np.min(band[:, 1]), np.max(band[:, 1])) == pytest.approx((40, 60))  # the deviation is 10


def test_forgetting_is_best_minus_last(tmp_path: Path) -> None:
    figure = plots.forgetting_by_task({"a": [made_run(tmp_path / "a")]})
    assert curve(figure, 0) == pytest.approx([40, 40])


def test_an_unfinished_run_forgets_up_to_where_it_is(tmp_path: Path) -> None:
    part = made_run(tmp_path / "a", TASKS[:2], environment={"experiences": 3})
    assert curve(plots.forgetting_by_task({"a": [part]}), 0) == pytest.approx([30])


def test_what_is_not_defined_is_not_drawn(tmp_path: Path) -> None:
    domains = made_run(tmp_path / "a", [[30], [50], [45]])
    assert plots.forgetting_by_task({"a": [domains]}) is None
    assert plots.prompts_in_use({"a": [domains]}) is None
    assert plots.prompts_chosen(domains) is None
    assert plots.key_similarity(domains) is None
    empty = made_run(tmp_path / "b", [], environment={"experiences": 3})
    assert plots.accuracy_matrix(empty) is None
    assert plots.accuracy_over_time({"a": [empty]}) is None


def test_what_was_not_tested_is_not_drawn(tmp_path: Path) -> None:
    nothing = (None, None, None)
    once = made_run(tmp_path / "a", (nothing, nothing, (50, 40, 70)))
    assert plots.forgetting_by_task({"a": [once]}) is None
    assert curve(plots.accuracy_over_time({"a": [once]}), 0)[-1] == pytest.approx(160 / 3)
    begun = made_run(tmp_path / "b", (nothing,), environment={"experiences": 3})
    assert plots.accuracy_over_time({"a": [begun]}) is None
    assert plots.accuracy_matrix(begun) is None


def test_the_upper_bound_is_one_level(tmp_path: Path) -> None:
    joint = made_run(tmp_path / "b", [[90, 80, 70]], environment={"joins": "x"})
    figure = plots.accuracy_over_time({"a": [made_run(tmp_path / "a")], "bound": [joint]})
    assert curve(figure, 1) == pytest.approx([80, 80])


def test_the_matrix_shows_every_cell_that_was_measured(tmp_path: Path) -> None:
    assert texts(plots.accuracy_matrix(made_run(tmp_path / "a"))) == ["90", "60", "80", "50", "40", "70"]


def test_prompts_of_a_real_run(tmp_path: Path) -> None:
    run = toy_run(tmp_path / "a", top_k=2, pool_size=4)
    facts = run.records[-1].facts
    figure = plots.prompts_chosen(run)
    assert figure is not None
    shares = [
        [bar.get_bbox().height for bar in axes.patches if isinstance(bar, Rectangle)]
        for axes in figure.axes
        if axes.get_visible()
    ]
    assert np.array(shares) == pytest.approx(100 * np.array(facts["chosen_in_tests"]) / 14)  # 2 classes of 7 images
    assert np.sum(shares, axis=1) == pytest.approx(200)  # every image chooses two
    used = [record.facts["prompts_in_use"] for record in run.records]
    assert curve(plots.prompts_in_use({"l2p": [run]}), 0) == used
    cosines = texts(plots.key_similarity(run))
    assert [cosines[place] for place in (0, 5, 10, 15)] == ["1.0"] * 4


def test_an_unfinished_real_run_shows_the_test_sets_so_far(tmp_path: Path) -> None:
    whole = toy_run(tmp_path / "a", top_k=2)
    part = Run(whole.path, whole.config, whole.environment, whole.records[:2], whole.seconds[:2])
    figure = plots.prompts_chosen(part)
    assert figure is not None
    assert sum(axes.get_visible() for axes in figure.axes) == 2


def test_names_never_overlap_and_keep_their_order() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        count = int(rng.integers(1, 9))
        wanted, heights = rng.uniform(0, 1, count).tolist(), rng.uniform(0.02, 0.11, count).tolist()
        found = drawing._apart(wanted, heights)
        order = np.argsort(wanted)
        assert np.argsort(found).tolist() == order.tolist()
        lows = [found[place] - heights[place] / 2 for place in order]
        highs = [found[place] + heights[place] / 2 for place in order]
        assert lows[0] >= -1e-9
        assert highs[-1] <= 1 + 1e-9
        assert all(low >= high - 1e-9 for low, high in zip(lows[1:], highs[:-1], strict=True))


def test_names_that_fit_stay_where_they_are() -> None:
    assert drawing._apart([0.9, 0.2, 0.5], [0.1, 0.1, 0.1]) == pytest.approx([0.9, 0.2, 0.5])
    assert drawing._apart([0.5, 0.5], [0.1, 0.1]) == pytest.approx([0.45, 0.55])


@pytest.mark.parametrize("theme", THEMES)
def test_same_run_same_bytes(tmp_path: Path, theme: str) -> None:
    run = toy_run(tmp_path / "a", top_k=2)
    drawn = [
        [
            plots.accuracy_matrix(run, theme=theme),
            plots.prompts_chosen(run, theme=theme),
            plots.key_similarity(run, theme=theme),
            plots.accuracy_over_time({"l2p": [run]}, theme=theme),
        ]
        for _ in range(2)
    ]
    for first, second in zip(*drawn, strict=True):
        assert first is not None
        assert second is not None
        assert png(first) == png(second)
        assert svg(first) == svg(second)


def test_a_users_settings_change_nothing_and_stay(tmp_path: Path) -> None:
    run = made_run(tmp_path / "a")
    plain = plots.accuracy_matrix(run)
    with mpl.rc_context(
        {"font.size": 30, "savefig.bbox": "tight", "savefig.transparent": True, "svg.fonttype": "none"}
    ):
        changed = plots.accuracy_matrix(run)
        assert plain is not None
        assert changed is not None
        bytes_here = png(changed), svg(changed)
        assert mpl.rcParams["font.size"] == 30
    assert bytes_here == (png(plain), svg(plain))


def test_themes_have_their_paper_and_unknown_ones_are_refused(tmp_path: Path) -> None:
    run = made_run(tmp_path / "a")
    for name, theme in THEMES.items():
        figure = plots.accuracy_matrix(run, theme=name)
        assert figure is not None
        corner = Image.open(io.BytesIO(png(figure))).convert("RGB").getpixel((0, 0))
        assert corner == tuple(bytes.fromhex(theme.paper[1:]))
    with pytest.raises(ValueError, match="theme = 'sepia'"):
        plots.accuracy_matrix(run, theme="sepia")


def test_names_are_never_formulas(tmp_path: Path) -> None:
    figure = plots.accuracy_over_time({r"$\frac{": [made_run(tmp_path / "a")]})
    assert figure is not None
    assert len(svg(figure)) > 1000


def test_svg_holds_no_date(tmp_path: Path) -> None:
    figure = plots.accuracy_matrix(made_run(tmp_path / "a"))
    assert figure is not None
    assert b"dc:date" not in svg(figure)
