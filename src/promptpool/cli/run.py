"""`promptpool run`: one configuration to its end, with bars; and what it would cost."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

from promptpool import distributed
from promptpool.backbones.products import suited
from promptpool.backbones.vit import ViT
from promptpool.backbones.weights import SHIPPED
from promptpool.cli.display import Watched, in_words, pairs_table, reading, show
from promptpool.cli.errors import user_errors
from promptpool.data.sets import DATASETS
from promptpool.errors import skipped_text
from promptpool.experiments.build import Built, SharedCache, build
from promptpool.experiments.config import Config, ConfigError, complete, keywords, overridden, read_config
from promptpool.experiments.cost import Estimate, estimate
from promptpool.experiments.identity import run_folder
from promptpool.experiments.machine import Meanwhile
from promptpool.experiments.runner import device, go_on, is_finished
from promptpool.files import cache_folder, data_in
from promptpool.report.classes import worst_lines
from promptpool.report.comparison import terminal_tables
from promptpool.report.names import method_name
from promptpool.reproduce.expected import expected
from promptpool.training.loop import Step
from promptpool.training.run_folder import read_records, read_run

# Said at once, before images are read with weights that may see nothing in them.
DRAWN_ONLY = (
    "the weights in the package know drawn characters only; for photographs add "
    "backbone.name=facebook/dinov2-small backbone.image_size=224, "
    "or backbone.name=FILE.safetensors, a ViT that you have (promptpool weights list shows others)"
)


def run_one(
    name: Annotated[str, typer.Argument(help="BENCHMARK-METHOD (promptpool list), or a TOML file.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Values to set, such as learner.top_k=4")] = None,
    scale: Annotated[str | None, typer.Option(help="The benchmark's size, where it comes in several.")] = None,
    runs: Annotated[Path, typer.Option(help="Where run folders go.")] = Path("runs"),
    folder: Annotated[Path | None, typer.Option(help="This run's folder, instead of one named by its values.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done and what it costs.")] = False,
    data: Annotated[Path | None, typer.Option(help="Your own images, or the folder of the published sets.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at a file that is no image.")] = False,
) -> None:
    """Run one configuration; the same command goes on with a run that was stopped, to the same numbers."""
    with user_errors():
        distributed.start()
        raw = overridden(read_config(name, scale=scale), overrides or [])
        config = complete(with_data(raw, data, strict))
        path = run_folder(runs, name, config) if folder is None else folder
        if "folder" in config["dataset"] and config["backbone"]["name"] in SHIPPED and distributed.rank() == 0:
            typer.echo(f"note: {DRAWN_ONLY}")
        with data_in(None if "folder" in config["dataset"] else data):
            if dry_run:
                describe(config, expected().get(name) if scale is None and not overrides else None)
            else:
                _run_and_tell(config, path)
        distributed.stop()


def with_data(raw: Config, data: Path | None, strict: bool) -> Config:
    """The values with where one's own images are, and whether a file that cannot be read ends the run."""
    dataset = dict(raw.get("dataset", {}))
    known = keywords(DATASETS[dataset["name"]]) if dataset.get("name") in DATASETS else {}
    if data is not None and "folder" in known:
        dataset["folder"] = str(data.expanduser().resolve())
    elif data is not None and not data.expanduser().is_dir():
        raise ConfigError(f"--data {data}: no such folder")
    if strict and "strict" not in known:
        raise ConfigError(f"--strict: the data set {dataset.get('name')} has no files of one's own to stop at")
    if strict:
        dataset["strict"] = True
    return {**raw, "dataset": dataset} if dataset else raw


def _run_and_tell(config: Config, path: Path) -> None:
    joint = bool(config["scenario"].get("joint"))
    if not watch({method_name(config["learner"]["name"], joint=joint): (config, path)}):
        own = "folder" in config["dataset"]
        typer.echo(f"{path} is finished{'; for images that changed, --folder starts a new run' if own else ''}")
    if distributed.rank() > 0:
        return
    finished = read_run(path)
    for table in terminal_tables([finished]):
        Console().print(table)
    for line in worst_lines([finished]):
        typer.echo(line)
    if skipped := finished.environment.get("skipped"):
        typer.echo(skipped_text(skipped))
    for note in finished.environment.get("notes", []):
        typer.echo(f"note: {note}")
    typer.echo(f"records: {path}, page: promptpool report {path}")


def watch(jobs: dict[str, tuple[Config, Path]]) -> bool:
    """Take runs to their end with bars and a table; Ctrl-C stops after a step, and they can go on.

    False if all were finished before.
    """
    cache, console = SharedCache(cache_folder() / "features"), Console(quiet=distributed.rank() > 0)
    with reading(console):
        built = {name: build(config, cache) for name, (config, path) in jobs.items() if not is_finished(path, config)}
    if not built:
        return False
    watched = [
        Watched(name, read_records(path), partial(_rest, built.get(name), path), config["scenario"].get("joint", False))
        for name, (config, path) in jobs.items()
    ]
    longest = max([len(each.stream.experiences) for each in built.values()] + [len(each.records) for each in watched])
    with interruptible() as asked, closing(show(console, watched, longest)) as steps:
        for _ in steps:
            if asked():
                raise KeyboardInterrupt
    return True


def _rest(built: Built | None, path: Path) -> Iterator[Step]:
    return iter(()) if built is None else go_on(built, path)


def describe(config: Config, accuracy: str | None = None) -> None:
    """What a configuration would do, what it costs on this machine and, where that is known, what comes out."""
    with reading(Console()):
        built = build(config)
    meanwhile = Meanwhile()
    cost = estimate(built)
    stream, later = built.stream, built.learner.at_the_end
    sizes = ", ".join(str(len(experience.train)) for experience in stream.experiences)
    rows = {
        "stream": f"experiences: {len(stream.experiences)}, classes: {len(stream.class_names)}",
        "training images": sizes,
        "test images": ", ".join(str(len(test)) for test in stream.tests),
        **({"files": skipped_text(stream.notes.skipped)} if stream.notes.skipped else {}),
        **({"note": "; ".join(stream.notes.texts)} if stream.notes.texts else {}),
        "learner": f"{config['learner']['name']}, {cost.trained_parameters:,} trained parameters",
        "backbone": f"{config['backbone']['name']}, {built.learner.backbone.origin}",
        "steps": f"{cost.steps:,} of {built.plan.batch_size} images",
        "estimated time": time_of(cost) + (f", and more where {later} after a task" if later else ""),
        **busy_note(meanwhile.crowded()),
        **faster(built),
        **({} if accuracy is None else {"average accuracy": accuracy}),
        **({} if cost.memory is None else {"memory": f"about {cost.memory / 2**20:,.0f} MiB"}),
    }
    Console().print(pairs_table("this run would be", rows))


def time_of(cost: Estimate) -> str:
    """How long a run takes, and how much of that is compiling, where it compiles."""
    return in_words(cost.seconds) + (f", {in_words(cost.compiling)} of it to compile" if cost.compiling else "")


def busy_note(taken: float | None) -> dict[str, str]:
    """That a time was measured while others took this share of the processors, for the table."""
    return {} if taken is None else {"busy": f"others take {taken:.0%} of the processors: idle, it may take less"}


def faster(built: Built) -> dict[str, str]:
    """What is likely faster on this processor, for the table."""
    backbone = built.learner.backbone
    if not isinstance(backbone, ViT) or device().type != "cpu" or suited() == "torch":
        return {}
    if (backbone.precision, backbone.products, backbone.compiled) != ("single", "torch", False):
        return {}
    return {"likely faster": f"backbone.products={suited()} (promptpool tune measures it)"}


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Gives a function that is True once Ctrl-C was pressed; a second one interrupts at once."""
    pressed: list[int] = []

    def press(number: int, frame: FrameType | None) -> None:
        del frame
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)
