"""From the name of a study to the runs it needs, and from the runs to its entries."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import count, takewhile
from pathlib import Path

from promptpool.experiments.build import Built, Stock, build
from promptpool.experiments.config import UNTRAINED, Config, ConfigError, nearest
from promptpool.experiments.identity import run_folder
from promptpool.experiments.runner import is_finished
from promptpool.metrics import Matrix
from promptpool.reproduce import batches
from promptpool.reproduce.claims import Claim, claims
from promptpool.reproduce.costs import seconds_per_pass, work
from promptpool.reproduce.entries import Entry, entry
from promptpool.reproduce.figures import shares_chosen
from promptpool.reproduce.jobs import FEATURES, Job, share_done
from promptpool.reproduce.studies import STUDIES, Item
from promptpool.training.folder import Run, is_run, read_run

NAMES = (*STUDIES, "batches")


@dataclass(frozen=True)
class Request:
    """What is to be reproduced, and how."""

    studies: tuple[str, ...]
    scale: str
    seeds: int
    runs: Path
    only: str = "*"
    limit: int | None = None  # images per class, to try the whole path
    backbone: str | None = None  # in the place of the pre-trained one

    def items(self) -> Iterator[Item]:
        """Every cell, in order."""
        for study in self.studies:
            for item in batches.items(self.scale) if study == "batches" else STUDIES[study](self.scale):
                names = (item.method.lower(), f"{item.stream} {item.method}".lower())
                if any(fnmatchcase(name, self.only.lower()) for name in names):
                    yield replace(item, config=self._changed(item.config))

    def folder(self, item: Item, seed: int) -> Path:
        name = f"{item.stream}-{item.run or item.method}".lower().replace(" ", "-")
        return run_folder(self.runs, name, seeded(item.config, seed))

    def jobs(self) -> list[Job]:
        """One for each run that is needed; a configuration that stands in several cells is one run."""
        found: dict[Path, Job] = {}
        for seed in range(self.seeds):
            for item in self.items():
                if item.study == "batches" and seed:
                    continue
                name = f"{item.stream}, {item.method}" + (f" at {item.at}" if item.at is not None else "")
                config = seeded(item.config, seed)
                folder = self.folder(item, seed)
                found.setdefault(folder, Job(f"{name}, seed {seed}", config, folder))
        return list(found.values())

    def finished(self, item: Item) -> list[Run]:
        """The runs of a cell that are at their end, one for each seed; of more seeds than are wanted, if there are."""
        wanted = [self._finished(item, seed) for seed in range(self.seeds)]
        more = takewhile(bool, (self._finished(item, seed) for seed in count(self.seeds)))
        return [run for run in (*wanted, *more) if run is not None]

    def _finished(self, item: Item, seed: int) -> Run | None:
        folder = self.folder(item, seed)
        whole = is_run(folder) and is_finished(folder, seeded(item.config, seed))
        return read_run(folder) if whole else None

    def _changed(self, config: Config) -> Config:
        config = copy.deepcopy(config)
        if self.limit is not None:
            for name in ("train_per_class", "test_per_class"):
                config["dataset"][name] = min(self.limit, config["dataset"][name] or self.limit)
        if self.backbone is not None and config["backbone"]["name"] not in UNTRAINED:
            config["backbone"]["name"] = self.backbone
        return config


@dataclass
class Results:
    """All that was found: entries by study, and how each task chose its prompts."""

    entries: dict[str, list[Entry]] = field(default_factory=dict)
    shares: dict[str, Matrix] = field(default_factory=dict)

    @property
    def claims(self) -> list[Claim]:
        return claims([entry for entries in self.entries.values() for entry in entries], self.shares)


def seeded(config: Config, seed: int) -> Config:
    """The configuration with another seed wherever it had one of its own kind."""
    config = copy.deepcopy(config) | {"seed": seed}
    for table in ("learner", "plan", "backbone"):
        if "seed" in config[table]:
            config[table]["seed"] = seed
    return config


def names_of(target: str) -> tuple[str, ...]:
    """The studies that a word of the command means."""
    if target == "all":
        return NAMES
    if target not in NAMES:
        raise ConfigError(f"{target!r}: no such table or figure; {nearest(target, (*NAMES, 'all'))}")
    return (target,)


def checked(jobs: Sequence[Job]) -> tuple[list[Job], float]:
    """The jobs with what they cost, all of them built once so that what cannot run is said before anything does.

    Also the seconds that one worker is thought to need for all.
    """
    stock, complaints = Stock(), dict[str, str]()
    costed, seconds, pace = [], 0.0, dict[str, float]()
    for job in jobs:
        try:
            built: Built = build(job.config, stock)
        except (ConfigError, OSError) as error:
            complaints.setdefault(str(error), job.name)
            continue
        kind = repr((job.config["backbone"], built.learner.view))
        if kind not in pace:
            pace[kind] = seconds_per_pass(built)
        costed.append(replace(job, work=max(work(built) * pace[kind], 1e-3)))
        seconds += costed[-1].work * (1 - share_done(job))
    if complaints:
        raise ConfigError("; ".join(f"{name}: {error}" for error, name in complaints.items()))
    return costed, seconds


def collect(wanted: Request, *, test_again: bool = True) -> Results:
    """What the finished runs say; cells without one are there, empty.

    Without `test_again` a run that was not yet tested with other batches is left out of that study.
    """
    results, stock = Results(), Stock(wanted.runs / FEATURES)
    for item in wanted.items():
        runs = wanted.finished(item)
        if item.study == "batches":
            found = batches.measured(item, runs[0], stock) if runs and (test_again or batches.known(runs[0])) else []
        else:
            found = [entry(item, runs)]
        results.entries.setdefault(item.study, []).extend(found)
        if item.study == "figure3" and runs:
            results.shares[item.stream] = shares_chosen(runs[0])
    if "batches" in results.entries:  # by order of the test images first
        results.entries["batches"].sort(key=lambda each: batches.ORDERS.index(each.group))
    return results
