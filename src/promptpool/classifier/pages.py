"""Parts of pages that show pictures: sections, facts, and lists of small pictures with a line or two on each."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import NamedTuple

from promptpool.classifier.looking import Seen
from promptpool.data.decoding import proportions

WIDEST = 3.0  # as many times wider than high, or higher than wide, is a picture shown at most


class Caption(NamedTuple):
    """What is said of a picture beside its name: the main thing, and more about it."""

    main: str = ""
    more: str = ""


def section(title: str, *parts: str) -> str:
    """A part of a page that a screen reader can jump to by its title."""
    name = f"part-{''.join(c if c.isalnum() else '-' for c in title.lower())}"
    body = "\n".join(part for part in parts if part)
    return (
        f'<section aria-labelledby="{escape(name)}">\n<h2 id="{escape(name)}">{escape(title)}</h2>\n{body}\n</section>'
    )


def subsection(title: str, body: str) -> str:
    return f"<h3>{escape(title)}</h3>\n{body}"


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>" if text else ""


def note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>' if text else ""


def facts(values: Mapping[str, str]) -> str:
    """Names and what is said of each."""
    rows = (f'<tr><th scope="row">{escape(name)}</th><td>{escape(text)}</td></tr>' for name, text in values.items())
    return f'<table class="facts plain"><tbody>{"".join(rows)}</tbody></table>'


def shown(
    seen: Seen, rows: Iterable[int], caption: Callable[[int], Caption] | None = None, *, dense: bool = False
) -> str:
    """Pictures in a grid, in this order."""
    items = "\n".join(_item(seen, row, caption(row) if caption else Caption()) for row in rows)
    return f'<ol class="shown{" dense" if dense else ""}">\n{items}\n</ol>' if items else ""


def _item(seen: Seen, row: int, caption: Caption) -> str:
    name, path = seen.names[row], seen.paths[row]
    ratio = min(max(proportions(path) if path is not None else 1.0, 1 / WIDEST), WIDEST)
    data = base64.b64encode(seen.small[row]).decode()
    said = f"<b>{escape(caption.main)}</b>" if caption.main else ""
    said += f"<span>{escape(caption.more)}</span>" if caption.more else ""
    alt = ": ".join(filter(None, (name, ", ".join(filter(None, caption)))))
    return (
        f'<li class="card"><div><img src="data:image/jpeg;base64,{data}" alt="{escape(alt)}" '
        f'style="--ratio:{ratio:.3f}"></div><p>{said}<span class="file">{escape(name)}</span></p></li>'
    )


def percent(share: float) -> str:
    """A share as people read it, in one piece; what is not quite all is not called all."""
    return f"{min(100 * share, 99.9 if share < 1 else 100):.1f}\N{NO-BREAK SPACE}%"
