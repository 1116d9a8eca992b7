"""Draw docs/l2p.png, the figure of the README: how L2P turns an image into class scores.

python benchmarks/draw_l2p.py
"""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch, Rectangle

FILE = Path(__file__).parent.parent / "docs" / "l2p.png"
INK, QUIET = "#1c2333", "#4d5768"
FROZEN, FROZEN_EDGE, CLASS = "#dfe6f3", "#7286ad", "#7286ad"
LEARNED, LEARNED_EDGE, UNUSED, UNUSED_EDGE = "#f4a259", "#b8651b", "#fdeedd", "#dfb78f"
CHOSEN, POOL, LENGTH, PATCHES = (1, 3, 4), 6, 2, 3  # prompts chosen of those in the pool, tokens of each, patches
SIDE = 1.9  # of a token


def main() -> None:
    figure = Figure(figsize=(11.2, 5.2), dpi=150, facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, 112)
    axes.set_ylim(0, 52)
    axes.axis("off")
    legend(axes)
    image(axes)
    query(axes)
    pool(axes)
    prompted(axes)
    figure.savefig(FILE)


def legend(axes: Axes) -> None:
    for x, text, fill, edge in ((2.5, "frozen", FROZEN, FROZEN_EDGE), (14.5, "learned", LEARNED, LEARNED_EDGE)):
        token(axes, x, 48.6, fill, edge)
        words(axes, x + 2.8, 49.5, text, align="left")


def image(axes: Axes) -> None:
    """A picture cut into patches, and its tokens."""
    x, y, side = 2.5, 21.0, 12.0
    axes.add_patch(Rectangle((x, y), side, side, facecolor="#d9efe4", edgecolor=QUIET, linewidth=1.2))
    axes.text(x + 6, y + 5.8, "R", fontsize=38, ha="center", va="center", color="#2f7d5c", rotation=12, weight="bold")
    for step in (4, 8):
        axes.plot([x + step] * 2, [y, y + side], color="white", linewidth=1.6)
        axes.plot([x, x + side], [y + step] * 2, color="white", linewidth=1.6)
    words(axes, x + 6, y - 2.0, "image $x$")
    arrow(axes, (15, 27), (21.2, 27))
    words(axes, 17.9, 28.6, "embed")
    column(axes, 22, 31, [(CLASS, FROZEN_EDGE)] + [(FROZEN, FROZEN_EDGE)] * PATCHES)
    words(axes, 25.0, 30.0, "[class]", align="left", size=11)
    words(axes, 25.0, 25.9, "patches", align="left", size=11)


def query(axes: Axes) -> None:
    """The upper way: the frozen model makes the query, which is compared with the keys."""
    arrow(axes, (22.95, 31.6), (22.95, 37.2))
    box(axes, (16.5, 37.5), (13, 6.6), "frozen\nViT", FROZEN, FROZEN_EDGE)
    arrow(axes, (29.8, 40.8), (36.6, 40.8))
    axes.add_patch(Circle((39.2, 40.8), 2.3, facecolor=CLASS, edgecolor=INK, linewidth=1.2))
    words(axes, 39.2, 40.8, "$q$", colour="white", size=16)
    words(axes, 39.2, 45.4, "query: the\n[class] row", size=11.5)
    arrow(axes, (41.8, 40.8), (51.2, 40.8))
    words(axes, 46.4, 42.4, "cosine")


def pool(axes: Axes) -> None:
    """Keys above their prompts; those that are chosen are strong."""
    box(axes, (51.6, 27.6), (49.6, 19.2), "", "#fffaf3", LEARNED_EDGE)
    words(axes, 76.4, 49.2, "a pool of $M$ prompts, each with a key", colour=INK, size=13)
    words(axes, 76.4, 44.9, "the $N$ keys nearest to $q$ choose their prompts", size=11.5)
    words(axes, 53.2, 40.8, "keys", colour=LEARNED_EDGE, align="left")
    words(axes, 53.2, 33.0, "prompts", colour=LEARNED_EDGE, align="left")
    for index in range(POOL):
        x, chosen = 66.5 + 6.0 * index, index in CHOSEN
        fill, edge, width = (LEARNED, LEARNED_EDGE, 1.8) if chosen else (UNUSED, UNUSED_EDGE, 1.0)
        axes.plot([x, x], [38.6, 34.9], color=edge, linewidth=width)
        axes.add_patch(Circle((x, 40.8), 2.1, facecolor=fill, edgecolor=edge, linewidth=width))
        words(axes, x, 40.7, f"$k_{index + 1}$", colour=INK if chosen else UNUSED_EDGE, size=12.5)
        column(axes, x - SIDE / 2, 34.9, [(fill, edge)] * LENGTH)
        words(axes, x, 29.3, f"$P_{index + 1}$", colour=INK if chosen else UNUSED_EDGE, size=12.5)


def prompted(axes: Axes) -> None:
    """The lower way: prompts before tokens, the same model, the mean of the prompts' rows, the head."""
    rows = len(CHOSEN) * LENGTH
    path(axes, [(58, 27.6), (58, 24.4), (44.95, 24.4), (44.95, 22.4)], LEARNED_EDGE)
    words(axes, 70.3, 24.4, "prepend the chosen prompts", size=11.5)
    path(axes, [(22.95, 22.8), (22.95, 6.0), (43.2, 6.0)], FROZEN_EDGE)
    words(axes, 33.3, 4.2, "the image's own tokens", size=11.5)
    own = [(CLASS, FROZEN_EDGE)] + [(FROZEN, FROZEN_EDGE)] * PATCHES
    column(axes, 44, 21.6, [(LEARNED, LEARNED_EDGE)] * rows + own)
    arrow(axes, (46.6, 12.0), (51.8, 12.0))
    box(axes, (52.2, 8.7), (13, 6.6), "the same\nfrozen ViT", FROZEN, FROZEN_EDGE)
    arrow(axes, (65.5, 12.0), (70.2, 12.0))
    column(axes, 71, 18.3, [("#f9cfa5", LEARNED_EDGE)] * rows)
    words(axes, 72.0, 3.6, "rows of\nthe prompts", size=11.5)
    arrow(axes, (73.6, 12.0), (81.2, 12.0))
    words(axes, 77.3, 13.6, "mean")
    box(axes, (81.6, 8.7), (9.4, 6.6), "linear\nhead", LEARNED, LEARNED_EDGE)
    arrow(axes, (91.3, 12.0), (96.2, 12.0))
    for index, score in enumerate((2.4, 8.2, 1.4, 3.4)):
        fill = "#2f7d5c" if index == 1 else "#b9c2d0"
        axes.add_patch(Rectangle((97, 14.9 - 2.3 * index), score, 1.5, facecolor=fill))
    words(axes, 101.3, 3.6, "scores of the\nclasses seen", size=11.5)


def column(axes: Axes, x: float, top: float, colours: list[tuple[str, str]]) -> None:
    for index, (fill, edge) in enumerate(colours):
        token(axes, x, top - SIDE * (index + 1), fill, edge)


def token(axes: Axes, x: float, y: float, fill: str, edge: str) -> None:
    axes.add_patch(Rectangle((x, y), SIDE, SIDE, facecolor=fill, edgecolor=edge, linewidth=1.2))


def box(axes: Axes, corner: tuple[float, float], size: tuple[float, float], text: str, fill: str, edge: str) -> None:
    shape = "round,pad=0,rounding_size=1.2"
    axes.add_patch(FancyBboxPatch(corner, *size, boxstyle=shape, facecolor=fill, edgecolor=edge, linewidth=1.6))
    words(axes, corner[0] + size[0] / 2, corner[1] + size[1] / 2, text, colour=INK, size=13)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str = QUIET) -> None:
    style = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.8, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 15}
    axes.annotate("", xy=end, xytext=start, arrowprops=style)


def path(axes: Axes, points: list[tuple[float, float]], colour: str) -> None:
    """A line with corners that ends in an arrow."""
    axes.plot(*zip(*points[:-1], strict=True), color=colour, linewidth=1.8, solid_joinstyle="round")
    arrow(axes, points[-2], points[-1], colour)


def words(
    axes: Axes, x: float, y: float, text: str, *, colour: str = QUIET, size: float = 12.0, align: str = "center"
) -> None:
    axes.text(x, y, text, ha=align, va="center", color=colour, fontsize=size, linespacing=1.15)


if __name__ == "__main__":
    main()
