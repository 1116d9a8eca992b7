"""Write the tables of the docs from the CSV files in docs/results, between marks such as <!-- table2 -->.

docs/results.md has the tables, README.md some rows of them, docs/results/search.md the lines of the search,
docs/results/recommended.md the closed form beside others, docs/performance.md the speed of a step. The CSV files have
more columns: seconds, prompts in use, seeds, revisions and the names of the runs.

python benchmarks/docs_tables.py
"""

from __future__ import annotations

import csv
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from step_table import memories, speeds
from step_table import read as measured

from promptpool.experiments.config import load_config
from promptpool.files import write_whole
from promptpool.reproduce.claims import claims as decided
from promptpool.reproduce.claims import highest
from promptpool.reproduce.results import Result, read_results

ROOT = Path(__file__).parent.parent
STORED = ROOT / "src" / "promptpool" / "reproduce" / "stored"
MINI, SMALL, SMALL_DINOV2 = STORED / "mini", STORED / "small", STORED / "small-dinov2"
PAGES = ("README.md", "docs/results.md", "docs/results/search.md", "docs/results/recommended.md", "docs/performance.md")
MARKED = re.compile(r"(<!-- (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
EXTRA, NO_MEMORY, CLOSED_FORM = "not in the paper", "no buffer", "Closed form"
SEARCHES = {
    "drawn characters": ("search.csv", "search_again.csv"),
    "CIFAR-100, ViT-Ti": ("search_vit_tiny.csv",),
    "5-datasets, ViT-Ti": ("search_five.csv",),
    "Gaussian CIFAR-100, ViT-Ti": ("search_gaussian.csv",),
    "CIFAR-100, DINOv2-S": ("search_dinov2.csv",),
    "5-datasets, DINOv2-S": ("search_dinov2_five.csv",),
    "own images, DINOv2-S": ("search_own.csv",),
}
REGULARISERS = ["EWC", "LwF"]
SUMMARY = (
    *("FT-seq", "LwF", "L2P", "Masked linear head", "Nearest class mean", "RanPAC", "Closed form"),
    *("BiC", "Upper bound"),
)

Row = dict[str, str]


def filled(text: str, folder: Path = MINI) -> str:
    """The text with everything between marks written anew."""
    makers: dict[str, Callable[[Path], str]] = {
        "streams": streams,
        "table2": architectures,
        "table5": parts,
        "figure4": lengths,
        "buffers": buffers,
        "batches": batches,
        "claims": claims,
        "summary": summary,
        "search": lambda _: search(ROOT / "docs" / "results" / "search.csv"),
        "search_again": lambda _: search(ROOT / "docs" / "results" / "search_again.csv"),
        "trials": lambda _: trials(ROOT / "docs" / "results"),
        "speed": lambda _: "\n".join(speeds(measured(ROOT / "docs" / "results" / "speed.csv"))),
        "memory": lambda _: "\n".join(memories(measured(ROOT / "docs" / "results" / "speed.csv"))),
        "heads": lambda _: heads(ROOT / "docs" / "results" / "closed_form.csv"),
        "adapt": lambda _: adapted(ROOT / "docs" / "results" / "adapt.csv"),
        "recommended": lambda _: recommended(ROOT / "docs" / "results" / "recommended.csv"),
        "behind": lambda _: behind(ROOT / "docs" / "results" / "recommended.csv"),
        "comparison": lambda _: comparison(ROOT / "docs" / "results" / "recommended.csv"),
        "answers": lambda _: answers({"": MINI, ", ViT-Ti": SMALL, ", DINOv2-S": SMALL_DINOV2}),
        "small": lambda _: streams(SMALL),
        "small_claims": lambda _: claims(SMALL),
        "small_parts": lambda _: parts(SMALL),
        "dinov2": lambda _: streams(SMALL_DINOV2),
    }
    return MARKED.sub(lambda match: f"{match[1]}{makers[match[2]](folder)}\n{match[3]}", text)


def streams(folder: Path) -> str:
    """Tables 1, 3 and 4 side by side: a row for each method, the streams in columns."""
    files = [path for name in ("table1", "table3", "table4") if (path := folder / f"{name}.csv").exists()]
    rows = [row for path in files for row in read(path)]  # those without a number too, for their order
    columns = list(dict.fromkeys(row["stream"] for row in rows))
    sizes = {stream: list(dict.fromkeys(filter(None, map(kept, of_stream(rows, stream))))) for stream in columns}
    found: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        group = row["group"]
        if kept(row):
            small = len(sizes[row["stream"]]) > 1 and sizes[row["stream"]].index(kept(row)) == 0
            group = "small memory" if small else "large memory"
        found.setdefault((group, row["method"]), {})[row["stream"]] = row
    forgets = [stream for stream in columns if any(row["forgetting"] for row in of_stream(rows, stream))]
    head = ["", "method", "classes in loss"]
    for stream in columns:
        head += [stream, "forgetting"] if stream in forgets else [stream]
    body = []
    for (group, method), of_method in found.items():
        by_stream = {stream: row for stream, row in of_method.items() if row["accuracy"]}
        if not by_stream:
            continue
        first = next(by_stream[stream] for stream in columns if stream in by_stream)
        cells = [group, named(method), first["loss_classes"] or "-"]
        for stream in columns:
            row = by_stream.get(stream, {})
            cells += [cell(row, "accuracy"), cell(row, "forgetting")] if stream in forgets else [cell(row, "accuracy")]
        body.append(cells)
    return table(head, body, left=3)


def answers(folders: dict[str, Path]) -> str:
    """What a reader asks first, a row for each stream: yes, no or level, and the two numbers."""
    head = [
        *("stream", "L2P forgets less than FT-seq", "L2P beats a masked head", "... one prompt", "... EWC and LwF"),
        *("L2P-R beats all with as large a memory", "the closed form beats all that keep no images"),
    ]
    body = []
    for weights, folder in folders.items():
        rows = [row for study in ("table1", "table3", "table4") for row in read_results(folder).studies.get(study, [])]
        for stream in dict.fromkeys(row.stream for row in rows):
            of = [row for row in rows if row.stream == stream and row.accuracy]
            keeps_none = [row for row in of if row.group in (NO_MEMORY, EXTRA)]
            largest = [row for row in of if row.group.endswith("per class")]
            largest = [row for row in largest if row.group == largest[-1].group]
            cells = [
                forgets(keeps_none),
                *(
                    beats("L2P", others, keeps_none)
                    for others in (["Masked linear head"], ["One prompt"], ["EWC", "LwF"])
                ),
                beats("L2P-R", [row.method for row in largest if "L2P-R" not in row.method], largest),
                beats(CLOSED_FORM, [row.method for row in keeps_none if row.method != CLOSED_FORM], keeps_none),
            ]
            body.append([stream + weights, *cells])
    return table(head, body, left=len(head))


def forgets(rows: Sequence[Result]) -> str:
    lost = {row.method: float(row.forgetting) for row in rows if row.forgetting}
    if not {"L2P", "FT-seq"} <= lost.keys():
        return "-"
    return f"{'yes' if lost['L2P'] < lost['FT-seq'] else 'no'}: {lost['L2P']:.1f}, {lost['FT-seq']:.1f}"


def beats(method: str, others: Sequence[str], rows: Sequence[Result]) -> str:
    """The verdict, the method's number and that of the best of the others."""
    claim = highest("", "", rows, method, others)
    if claim.lead is None:
        return "-"
    number = next(float(row.accuracy) for row in rows if row.method == method)
    return f"{claim.verdict}: {number:.1f}, {number - claim.lead:.1f}"


def comparison(path: Path) -> str:
    """The means over all streams, in words."""
    rows = by(read(path), "method")
    streams = {row["stream"] for of in rows.values() for row in of}
    means = {method: sum(map(accuracy, of)) / len(of) for method, of in rows.items() if len(of) == len(streams)}
    said = [f"{method} {mean:.1f}" for method, mean in sorted(means.items(), key=lambda pair: -pair[1])]
    return prose([f"Accuracy on average over {len(streams)} streams: {', '.join(said)}."])


def architectures(folder: Path) -> str:
    """Table 2 without the references that stand beside L2P in Table 1."""
    rows = read(folder / "table2.csv")
    extra = {row["method"] for row in read(folder / "table1.csv") if row["group"] == EXTRA}
    bounds = {row["group"]: float(row["accuracy"]) for row in rows if row["method"] == "Upper bound"}
    body = []
    for row in (row for row in rows if row["method"] not in extra):
        below = "-" if row["method"] == "Upper bound" else f"{bounds[row['group']] - float(row['accuracy']):.1f}"
        numbers = [cell(row, "accuracy"), cell(row, "forgetting"), below, cell(row, "task_given")]
        body.append([row["group"], named(row["method"]), *numbers])
    return table(["", "method", "accuracy", "forgetting", "below its bound", "task given"], body)


def parts(folder: Path) -> str:
    """Table 5 without the references."""
    rows = [row for row in read(folder / "table5.csv") if row["group"] != EXTRA]
    body = [[named(row["method"]), cell(row, "accuracy"), cell(row, "forgetting")] for row in rows]
    return table([rows[0]["stream"], "accuracy", "forgetting"], body, left=1)


def lengths(folder: Path) -> str:
    """The best and the worst of Figure 4, and what the pool's size does."""
    said = []
    for stream, rows in by(read(folder / "figure4.csv"), "stream").items():
        sizes = [cell(row, "accuracy") for row in rows if row["group"] == "pool size"]
        pools = between(row["at"] for row in rows if row["group"] == "pool size")
        others = sorted((row for row in rows if row["group"] != "pool size"), key=lambda row: float(row["accuracy"]))
        worst, *_, best = [f"{cell(row, 'accuracy')} (L_p = {row['at']}, {row['group']})" for row in others]
        said.append(f"{stream}: best {best}, worst {worst}; with pools of {pools} prompts {between(sizes)}.")
    return prose(said)


def buffers(folder: Path) -> str:
    """Accuracy by images kept, one method after the other."""
    rows = read(folder / "buffers.csv")
    sizes = ", ".join(dict.fromkeys(row["at"] for row in rows))
    methods = by(rows, "method").items()
    said = [f"{method} {', '.join(cell(row, 'accuracy', spread=False) for row in of)}" for method, of in methods]
    return prose([f"Accuracy with {sizes} images per class: {'; '.join(said)}."])


def batches(folder: Path) -> str:
    """What each profile has with test batches of every size, in both orders."""
    rows = read(folder / "batches.csv")
    sizes = ", ".join(dict.fromkeys(row["at"] for row in rows))
    said = []
    for profile, of_profile in by(rows, "method").items():
        orders = [f"{between(row['accuracy'] for row in of)} {order}" for order, of in by(of_profile, "group").items()]
        said.append(f"{profile} {', '.join(orders)}")
    return prose([f"Accuracy with test batches of {sizes}: {'; '.join(said)}."])


def claims(folder: Path) -> str:
    """A row for each claim, with the verdict and the numbers of each stream; one seed unless it says more."""
    found: dict[str, list[str]] = {}
    for claim in decided(read_results(folder)):
        if claim.lead is None:
            continue
        text, memory, _ = re.split(r"(, \d+ per class|)$", claim.text, maxsplit=1)
        seeds = "" if claim.seeds == "1" else f" ({claim.seeds} seeds)"
        found.setdefault(text, []).append(f"**{claim.verdict}**, {claim.stream}{memory}{seeds}: {claim.numbers}")
    return table(["claim", "here"], [[text, "<br>".join(streams)] for text, streams in found.items()])


def summary(folder: Path) -> str:
    """Nine rows of Table 1: its first stream, and of the methods with a memory the one with the largest."""
    rows = read(folder / "table1.csv")
    first = {row["method"]: row for row in of_stream(rows, rows[0]["stream"])}  # the largest memory comes last
    body = [
        [first[method]["group"], named(method), cell(first[method], "accuracy"), cell(first[method], "forgetting")]
        for method in SUMMARY
    ]
    return table(["", "method", "average accuracy", "forgetting"], body)


def search(path: Path) -> str:
    """Every line of the search, a row for each method; bold is what methods.toml has."""
    body = []
    for method, lines in by(read(path), "method").items():
        name, many = f"glyphs100-{method}", "dataset.train_per_class=50"  # unless a line says otherwise
        chosen, texts = load_config(name, [many]), []
        for line in lines:
            given = line["values"].split()
            text = f"{', '.join(filter(None, map(in_words, given)))}: {line['average accuracy']}"
            texts.append(f"**{text}**" if load_config(name, [many, *given]) == chosen else text)
        body.append([method, "; ".join(texts)])
    return table(["method", "lines"], body)


def trials(folder: Path) -> str:
    """How many lines each method had in each search."""
    found = {name: [row["method"] for file in files for row in read(folder / file)] for name, files in SEARCHES.items()}
    methods = list(dict.fromkeys(method for lines in found.values() for method in lines))
    body = [[method, *(str(lines.count(method) or "-") for lines in found.values())] for method in methods]
    return table(["method", *found], body, left=1)


def heads(path: Path) -> str:
    """Heads in closed form on features of held-out images; bold is the best of a row."""
    lines = read(path)
    names = list(dict.fromkeys(line["head"] for line in lines))
    rows: dict[tuple[str, ...], Row] = {}
    for line in lines:
        place = line["weights"].partition(".")[0], line["images per class"], line["blocks"]
        rows.setdefault(place, {})[line["head"]] = line["accuracy"]
    body = []
    for key, found in rows.items():
        best = max(found.values(), key=float)
        body.append([*key, *(f"**{found[name]}**" if found[name] == best else found[name] for name in names)])
    return table(["weights", "images per class", "blocks", *names], body, left=1)


def adapted(path: Path) -> str:
    """What the first task says of prompts for the closed form, and what later tasks show."""
    columns = ["weights", "start", "judged on", "images", "without prompts", "with prompts", "gain", "standard error"]
    return table(columns, [[row[name] for name in columns] for row in read(path)], left=3)


def recommended(path: Path) -> str:
    """Methods in rows and streams in columns, the best on average first; bold is the best of a stream."""
    columns, body = by(read(path), "stream"), list[tuple[float, list[str]]]()
    best = {stream: max(accuracy(row) for row in rows) for stream, rows in columns.items()}
    for method, rows in by(read(path), "method").items():
        found = {row["stream"]: row for row in rows}
        cells = []
        for stream in columns:
            row = found.get(stream)
            text = "-" if row is None else f"{accuracy(row):.1f}" + (f" ± {float(row['deviation']):.1f}" * several(row))
            cells.append(f"**{text}**" if row is not None and accuracy(row) == best[stream] else text)
        mean = sum(map(accuracy, rows)) / len(rows) if len(rows) == len(columns) else None
        most = max(best[row["stream"]] - accuracy(row) for row in rows)
        said = ["-", "-"] if mean is None else [f"{mean:.1f}", f"{most:.1f}"]
        body.append((-1.0 if mean is None else mean, [method, *cells, *said]))
    body.sort(key=lambda line: -line[0])
    head = ["method", *columns, "mean of all", "most behind the best"]
    return table(head, [cells for _, cells in body], left=1)


def behind(path: Path) -> str:
    """How far each method is behind the recommended one on the same images, in the order of the streams."""
    columns, body = by(read(path), "stream"), []
    for method, rows in by(read(path), "method").items():
        known = [row for row in rows if row["behind"] != "nan"]
        found = {row["stream"]: f"{float(row['behind']):.1f} ± {float(row['error']):.1f}" for row in known}
        if method != "Closed form with prompts":
            body.append([method, *(found.get(stream, "-") for stream in columns)])
    return table(["method", *columns], body, left=1)


def accuracy(row: Row) -> float:
    return float(row["average accuracy"])


def several(row: Row) -> bool:
    """True if a row is of more than one seed."""
    return int(row["seeds"]) > 1


def in_words(override: str) -> str:
    """A value of a line as a reader would say it."""
    name, _, value = override.partition("=")
    if name == "plan.optimiser":
        return {"adam": "Adam", "sgd": "SGD"}[value]
    if name in ("plan.momentum", "plan.batch_size", "learner.start", "learner.order", "learner.position"):
        return ""  # the same in every line of a search
    if name == "dataset.train_per_class":
        return f"{value} images"
    return (
        value
        if name in ("plan.learning_rate", "learner.start_from")
        else f"{name.partition('.')[2].replace('_', ' ')} {value}"
    )


def read(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def by(rows: Iterable[Row], name: str) -> dict[str, list[Row]]:
    """The rows grouped by a column, in order."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row[name], []).append(row)
    return found


def of_stream(rows: Iterable[Row], stream: str) -> list[Row]:
    return [row for row in rows if row["stream"] == stream]


def kept(row: Row) -> str:
    """How many images per class a row's group keeps, in words; empty if it keeps none."""
    return row["group"] if row["group"].endswith("per class") else ""


def named(method: str) -> str:
    return f"**{method}**" if method in ("L2P", "L2P-R") else method


def cell(row: Row, name: str, *, spread: bool = True) -> str:
    """A number of a row with its deviation over seeds; one decimal."""
    value, deviation = row.get(name, ""), row.get(f"{name}_deviation", "") if spread else ""
    return f"{float(value):.1f}" + (f" ± {float(deviation):.1f}" if deviation else "") if value else "-"


def between(values: Iterable[str]) -> str:
    """The range of some numbers."""
    found = sorted(values, key=float)
    return found[0] if found[0] == found[-1] else f"{found[0]} to {found[-1]}"


def prose(sentences: Iterable[str]) -> str:
    return textwrap.fill(" ".join(sentences), 120)


def table(head: Sequence[str], body: Iterable[Sequence[str]], *, left: int = 2) -> str:
    """A Markdown table; the first `left` columns hold words."""
    rule = ["---" if index < left else "---:" for index in range(len(head))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *body))


if __name__ == "__main__":
    for page in (ROOT / name for name in PAGES):
        write_whole(page, filled(page.read_text(encoding="utf-8")).encode())
