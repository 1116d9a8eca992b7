"""Colours and fonts of figures, light and dark, and how a figure becomes PNG or SVG, always with the same bytes.

The colours are those of Okabe and Ito, which differ for every kind of colour vision. In the dark theme blue and
vermilion are lighter, and yellow replaces sky blue. Every line has a marker of its own as well.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure
from PIL import Image

MARKERS = ("o", "s", "^", "D", "v", "P", "X")
WIDTH = 4.8  # inches; text stays readable when this is shrunk to a phone
DOTS = 200  # per inch


class Theme(NamedTuple):
    paper: str
    ink: str
    muted: str
    grid: str
    colours: tuple[str, ...]


THEMES = {
    "light": Theme(
        "#ffffff",
        "#1c2128",
        "#57606a",
        "#e4e8ec",
        ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#1c2128"),
    ),
    "dark": Theme(
        "#161b22",
        "#e6edf3",
        "#9aa5b1",
        "#2d343d",
        ("#56b4e9", "#f0803c", "#2fbf95", "#dd92bb", "#e69f00", "#f0e442", "#e6edf3"),
    ),
}


@contextmanager
def drawing(name: str) -> Iterator[Theme]:
    """Matplotlib's settings for a theme while a figure is made; a "$" in a text does not begin a formula."""
    if name not in THEMES:
        raise ValueError(f"theme = {name!r}: must be one of {', '.join(THEMES)}")
    theme = THEMES[name]
    settings: dict[Any, Any] = {
        "figure.facecolor": theme.paper,
        "figure.dpi": 100,
        "figure.constrained_layout.w_pad": 0.08,
        "figure.constrained_layout.h_pad": 0.08,
        "axes.facecolor": theme.paper,
        "axes.edgecolor": theme.grid,
        "axes.labelcolor": theme.muted,
        "axes.titlecolor": theme.ink,
        "axes.titlelocation": "left",
        "axes.titlesize": 11,
        "axes.titlepad": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.spines.left": False,
        "axes.axisbelow": True,
        "axes.unicode_minus": True,
        "font.family": ["DejaVu Sans"],  # comes with matplotlib, so the bytes are the same everywhere
        "font.size": 10,
        "grid.color": theme.grid,
        "text.color": theme.ink,
        "text.parse_math": False,
        "xtick.color": theme.grid,
        "ytick.color": theme.grid,
        "xtick.labelcolor": theme.muted,
        "ytick.labelcolor": theme.muted,
        "xtick.major.pad": 6,
        "ytick.major.size": 0,
        "xtick.major.size": 0,
    }
    with mpl.rc_context():
        mpl.rcdefaults()  # whatever a user's matplotlibrc says
        mpl.rcParams.update(settings)
        yield theme


def svg(figure: Figure) -> bytes:
    return _saved(figure, "svg", {"Date": None, "Creator": None})


def png(figure: Figure) -> bytes:
    """With a palette of 256 colours, which is enough here and saves one to two thirds of the bytes."""
    width, height = (int(DOTS * inches) for inches in figure.get_size_inches())
    whole = Image.frombytes("RGBA", (width, height), _saved(figure, "rgba")).convert("RGB")
    file = io.BytesIO()
    whole.quantize(256, dither=Image.Dither.NONE).save(file, "png", optimize=True)
    return file.getvalue()


def _saved(figure: Figure, form: str, metadata: dict[str, None] | None = None) -> bytes:
    file = io.BytesIO()
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams["svg.hashsalt"] = "promptpool"
        figure.savefig(file, format=form, dpi=DOTS, facecolor=figure.get_facecolor(), metadata=metadata)
    return file.getvalue()
