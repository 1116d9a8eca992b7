"""Put the tables that `promptpool reproduce` prints from docs/results/mini into docs/results.md, between their marks.

python benchmarks/docs_tables.py
"""

from __future__ import annotations

import re
from pathlib import Path

from promptpool.files import write_whole
from promptpool.reproduce.claims import markdown as claims_markdown
from promptpool.reproduce.outcome import read_results
from promptpool.reproduce.tables import markdown

DOCS = Path(__file__).parent.parent / "docs"
MARKED = re.compile(r"(<!-- (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(text: str, folder: Path) -> str:
    """The text with what lies between marks written anew."""
    results = read_results(folder)
    made = {name: markdown(entries) for name, entries in results.entries.items() if entries}
    made["claims"] = claims_markdown(results.claims)

    def made_or_missing(name: str) -> str:
        return made.get(name, f"Not measured yet: `promptpool reproduce {name}`.\n")

    return MARKED.sub(lambda match: f"{match[1]}\n{made_or_missing(match[2])}\n{match[3]}", text)


if __name__ == "__main__":
    page = DOCS / "results.md"
    write_whole(page, filled(page.read_text(encoding="utf-8"), DOCS / "results" / "mini").encode())
