"""Put the tables that `promptpool reproduce` prints from docs/results/mini into the docs, between their marks.

docs/results.md has them whole and the lines of docs/results/search.csv, README.md a summary of Tables 1 and 2.

python benchmarks/docs_tables.py
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path

from promptpool.experiments.config import load_config
from promptpool.files import write_whole
from promptpool.report.table import markdown
from promptpool.reproduce.claims import claims, claims_table
from promptpool.reproduce.output import study_tables
from promptpool.reproduce.results import Result, read_results

DOCS = Path(__file__).parent.parent / "docs"
MARKED = re.compile(r"(<!-- (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(text: str, folder: Path) -> str:
    """The text with what lies between marks written anew."""
    results = read_results(folder)
    made = {name: markdown([*study_tables(found).values()]) for name, found in results.studies.items() if found}
    made["claims"] = markdown([claims_table(claims(results))])
    made["summary"] = summary(results.studies["table1"], results.studies["table2"])
    made["search"] = searched(folder.parent / "search.csv")

    def made_or_missing(name: str) -> str:
        return made.get(name, f"Not measured yet: `promptpool reproduce {name}`.\n")

    return MARKED.sub(lambda match: f"{match[1]}\n{made_or_missing(match[2])}\n{match[3]}", text)


def summary(table1: Sequence[Result], table2: Sequence[Result]) -> str:
    """Table 1 on its first stream with the larger buffer, and what Table 2 has on another network; one decimal."""
    rows = [row for row in table1 if row.stream == table1[0].stream]
    smaller = list(dict.fromkeys(row.group for row in rows if row.group.endswith("per class")))[:-1]
    rows = [row for row in rows if row.group not in smaller] + [row for row in table2 if row.group != "ViT"]
    lines = ["| | method | average accuracy | forgetting |", "|---|---|---:|---:|"]
    for row in rows:
        name = f"**{row.method}**" if row.method in ("L2P", "L2P-R") else row.method
        numbers = (short(row.accuracy, row.accuracy_deviation), short(row.forgetting, row.forgetting_deviation))
        lines.append(f"| {row.group} | {name} | {' | '.join(numbers)} |")
    return "\n".join(lines) + "\n"


def searched(path: Path) -> str:
    """Every line of the search, a row for each method; bold is what methods.toml has."""
    with path.open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    lines = ["| method | lines |", "|---|---|"]
    for method in dict.fromkeys(line["method"] for line in found):
        name, many = f"glyphs100-{method}", "dataset.train_per_class=50"  # unless a line says otherwise
        chosen, texts = load_config(name, [many]), []
        for line in (line for line in found if line["method"] == method):
            given = line["values"].split()
            has = load_config(name, [many, *given]) == chosen
            text = f"{', '.join(filter(None, map(in_words, given)))}: {line['average accuracy']}"
            texts.append(f"**{text}**" if has else text)
        lines.append(f"| {method} | {'; '.join(texts)} |")
    return "\n".join(lines) + "\n"


def in_words(override: str) -> str:
    """A value of a line as a reader would say it."""
    name, _, value = override.partition("=")
    if name == "plan.optimiser":
        return {"adam": "Adam", "sgd": "SGD"}[value]
    if name == "plan.momentum":
        return ""  # every SGD of the search has the same
    if name == "dataset.train_per_class":
        return f"{value} images"
    return value if name == "plan.learning_rate" else f"{name.partition('.')[2].replace('_', ' ')} {value}"


def short(value: str, deviation: str) -> str:
    return f"{float(value):.1f}" + (f" ± {float(deviation):.1f}" if deviation else "") if value else "-"


if __name__ == "__main__":
    for page in (DOCS / "results.md", DOCS.parent / "README.md"):
        write_whole(page, filled(page.read_text(encoding="utf-8"), DOCS / "results" / "mini").encode())
