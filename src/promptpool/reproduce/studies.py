"""What each table and figure of the paper consists of, at each scale.

An item is one cell: a method on a stream, with its images per class in memory (or the value that a figure varies).
Items of several studies with the same configuration share one run. Beside L2P stand five methods that the paper does
not have and without which its numbers cannot be judged: `REFERENCE_METHODS`.

The scale `small` has the paper's data, few images of each class and small weights: what two cores can measure. With
other weights, `small-dinov2` has some rows of Table 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from promptpool.experiments import catalogue
from promptpool.experiments.catalogue import Benchmark
from promptpool.experiments.config import Config, complete, overridden
from promptpool.learners.profiles import PROFILES
from promptpool.report.names import METHODS
from promptpool.reproduce import paper
from promptpool.reproduce.paper import Reported, Setting

SCALES: dict[str, dict[str, str]] = {
    "mini": {"split": "glyphs100", "five": "glyph-five", "domains": "glyph-styles", "gaussian": "glyphs100-gaussian"},
    "small": {"split": "cifar100", "five": "5-datasets", "gaussian": "cifar100-gaussian"},
    "small-dinov2": {"split": "cifar100", "five": "5-datasets"},
    "paper": {"split": "cifar100", "five": "5-datasets", "domains": "core50", "gaussian": "cifar100-gaussian"},
}
NO_BUFFER, REFERENCES, BOUND = "no buffer", "not in the paper", "all data at once"
REFERENCE_METHODS = ("masked-linear", "one-prompt", "nearest-mean", "ranpac", "closed-form")
CLASSES = {  # without a buffer; FT-seq takes the steps of ER everywhere but in miniature, which has a row more
    "mini": ("ft-seq-frozen", "ft-seq", "ft-seq-sgd", "ewc", "lwf", "l2p"),
    "small": ("ft-seq-frozen", "ft-seq", "ewc", "lwf", "l2p"),
    "small-dinov2": ("ft-seq", "l2p"),
    "paper": ("ft-seq-frozen", "ft-seq", "ewc", "lwf", "l2p"),
}
REHEARSAL = ("er", "gdumb", "bic", "der++", "co2l", "l2p-r")
SIZES: dict[str, dict[str, tuple[int, ...]]] = {  # images per class in memory
    "mini": {"split": (2, 10), "five": (2, 4), "domains": (4,), "gaussian": (4,)},
    "small": {"split": (2, 10), "five": (2, 4), "gaussian": (4,)},
    "small-dinov2": {"split": (), "five": ()},
    "paper": {"split": (10, 50), "five": (5, 10), "domains": (50,), "gaussian": (50,)},
}
MORE_SIZES = {"mini": (2, 5, 10), "small": (2, 5, 10), "paper": (10, 20, 50)}
LENGTHS, POOLS = (1, 5, 10), (5, 10, 20, 30)
PLAIN = (  # view, steps and tests of the other runs, whatever a profile says of them
    *("view.crop=none", "view.flip=false", "view.values=symmetric", "view.test_crop=none", "backbone.gelu=none"),
    *("plan.drop_last=false", "plan.test_classes=seen"),
)


@dataclass(frozen=True)
class Item:
    """One cell of a table, or one point of a figure."""

    study: str
    stream: str
    group: str
    method: str
    config: Config
    at: int | None = None  # images per class in memory, length of a prompt, or size of a pool
    reported: Reported | None = None
    run: str = ""  # the name of its runs, if it is not the method's


def benchmark_of(scale: str, place: str) -> Benchmark:
    """The stream that has this place in the tables of a scale: split, five, domains or gaussian."""
    return catalogue.benchmarks()[SCALES[scale][place]]


def configured(
    on: Benchmark, scale: str, method: str, overrides: Sequence[str] = (), profile: str | None = None
) -> Config:
    """A method's configuration on a benchmark at a scale, every value written out and checked."""
    raw = catalogue.pair(on, catalogue.methods()[method], scale=scale)
    return complete(overridden(raw | ({} if profile is None else {"profile": profile}), overrides))


def table1(scale: str) -> Iterator[Item]:
    """Class-incremental learning: similar tasks, and unlike ones."""
    for place, reported in (("split", paper.TABLE_1["cifar100"]), ("five", paper.TABLE_1["5-datasets"])):
        yield from _rows("table1", scale, place, reported, CLASSES[scale], REHEARSAL)


def table2(scale: str) -> Iterator[Item]:
    """Architecture-based methods, each beside the upper bound of its own backbone."""
    split, reported = benchmark_of(scale, "split"), paper.TABLE_2
    more = () if scale == "paper" else ("dataset.train_per_class=50",)  # a network with random weights needs them
    resnet = "ResNet-18" if scale == "paper" else "ResNet-18, 50 images"
    for method in ("resnet18-upper-bound", "resnet18-ft-seq", "supsup", "dualnet"):
        found = reported["resnet18"].get(Setting(method.removeprefix("resnet18-"))) if scale == "paper" else None
        at = 10 if method == "dualnet" else None
        memory = () if at is None else memory_overrides(split, method, at)
        yield _item("table2", scale, split, resnet, method, at, found, (*more, *memory))
    for method in ("upper-bound", "l2p", *REFERENCE_METHODS):
        found = reported["vit-b16"].get(Setting(method)) if scale == "paper" else None
        yield _item("table2", scale, split, "ViT", method, None, found)


def table3(scale: str) -> Iterator[Item]:
    """Domain-incremental learning."""
    yield from _rows("table3", scale, "domains", paper.TABLE_3, ("ewc", "lwf", "l2p"), REHEARSAL)


def table4(scale: str) -> Iterator[Item]:
    """Task-agnostic learning: a stream without boundaries, each image once."""
    yield from _rows("table4", scale, "gaussian", paper.TABLE_4, ("ewc", "l2p"), ("er", "gdumb", "der++", "l2p-r"))


def table5(scale: str) -> Iterator[Item]:
    """What each part of L2P is worth on unlike tasks."""
    for method in ("one-prompt", "no-key", "no-diversity", "l2p"):
        reported = paper.TABLE_5[Setting(method)] if scale == "paper" else None
        yield _item("table5", scale, benchmark_of(scale, "five"), NO_BUFFER, method, None, reported)
    for method in ("masked-linear", "nearest-mean", "ranpac", "closed-form"):
        yield _item("table5", scale, benchmark_of(scale, "five"), REFERENCES, method, None, None)


def figure3(scale: str) -> Iterator[Item]:
    """Which prompts the tasks choose, similar tasks and unlike ones."""
    for place in ("split", "five"):
        yield _item("figure3", scale, benchmark_of(scale, place), NO_BUFFER, "l2p", None, None)


def figure4(scale: str) -> Iterator[Item]:
    """Accuracy by length of a prompt and prompts chosen (M = 20), and by size of the pool (L_p = 5)."""
    few = () if scale == "paper" else ("dataset.train_per_class=10",)
    for place, most in (("split", 5), ("five", 4)):
        benchmark = benchmark_of(scale, place)
        for chosen in (1, most, 2 * most):
            for length in LENGTHS:
                values = _pool(20, chosen, length) + few
                yield _item("figure4", scale, benchmark, f"N = {chosen}", "l2p", length, None, values)
        for size in POOLS:
            yield _item("figure4", scale, benchmark, "pool size", "l2p", size, None, _pool(size, most, 5) + few)


def buffers(scale: str) -> Iterator[Item]:
    """Accuracy by images per class in memory."""
    split = benchmark_of(scale, "split")
    for method in ("er", "gdumb", "bic", "der++", "l2p-r"):
        for size in MORE_SIZES[scale]:
            yield _item("buffers", scale, split, "images kept per class", method, size, None)


def batches(scale: str) -> Iterator[Item]:
    """What order and size of test batches do to each profile of L2P."""
    split = benchmark_of(scale, "split")
    for name in PROFILES:
        method = "l2p" if name == "paper" else f"l2p-{name}"
        config = configured(split, scale, method, () if scale == "paper" else PLAIN, profile=name)
        yield Item("batches", split.title, "profile", name, config, run="L2P")


STUDIES: Mapping[str, Callable[[str], Iterator[Item]]] = {
    "table1": table1,
    "table2": table2,
    "table3": table3,
    "table4": table4,
    "table5": table5,
    "figure3": figure3,
    "figure4": figure4,
    "buffers": buffers,
    "batches": batches,
}


def studies_at(scale: str) -> tuple[str, ...]:
    """The studies whose streams a scale has."""
    if scale == "small-dinov2":
        return ("table1",)
    return tuple(name for name in STUDIES if name != "table3" or "domains" in SCALES[scale])


def _rows(
    study: str,
    scale: str,
    place: str,
    reported: Mapping[Setting, Reported],
    plain: tuple[str, ...],
    rehearsal: tuple[str, ...],
) -> Iterator[Item]:
    """The groups of Tables 1, 3 and 4: without a buffer, the references, each buffer size, all data at once."""
    benchmark, known = benchmark_of(scale, place), reported if scale == "paper" else {}
    for method in plain:
        yield _item(study, scale, benchmark, NO_BUFFER, method, None, known.get(Setting(method)))
    for method in REFERENCE_METHODS:
        yield _item(study, scale, benchmark, REFERENCES, method, None, None)
    for size in SIZES[scale][place]:
        for method in (*rehearsal, "l2p-r-trained"):
            yield _item(study, scale, benchmark, f"{size} per class", method, size, known.get(Setting(method, size)))
    yield _item(study, scale, benchmark, BOUND, "upper-bound", None, known.get(Setting("upper-bound")))


def _item(
    study: str,
    scale: str,
    benchmark: Benchmark,
    group: str,
    method: str,
    at: int | None,
    reported: Reported | None,
    overrides: tuple[str, ...] | None = None,
) -> Item:
    if overrides is None:
        overrides = () if at is None else memory_overrides(benchmark, method, at)
    config = configured(benchmark, scale, method, overrides)
    return Item(study, benchmark.title, group, METHODS[method], config, at, reported)


def memory_overrides(on: Benchmark, method: str, per_class: int) -> tuple[str, ...]:
    """The overrides that give a method its memory."""
    values = catalogue.memory_values(catalogue.methods()[method], per_class, on.classes or 0)
    return tuple(f"learner.{name}={value}" for name, value in values.items())


def _pool(size: int, chosen: int, length: int) -> tuple[str, ...]:
    return (f"learner.pool_size={size}", f"learner.top_k={chosen}", f"learner.prompt_length={length}")
