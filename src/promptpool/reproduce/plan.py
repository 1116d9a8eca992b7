"""From the name of a study to the runs it needs, and from the runs to its results."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import count, takewhile
from pathlib import Path

from promptpool.experiments.build import Built, SharedCache, build
from promptpool.experiments.config import UNTRAINED, Config, ConfigError, nearest
from promptpool.experiments.cost import seconds_per_pass, work
from promptpool.experiments.identity import likeness, run_folder
from promptpool.experiments.runner import is_finished
from promptpool.report.rows import prompt_shares
from promptpool.reproduce.batches import ORDERS, batch_counts, is_tested
from promptpool.reproduce.jobs import FEATURES, Job, share_done
from promptpool.reproduce.results import Results, batch_results, known_seeds, result
from promptpool.reproduce.studies import STUDIES, Item, studies_at
from promptpool.training.run_folder import Run, read_run


@dataclass(frozen=True)
class Request:
    """Which studies to reproduce, and how."""

    studies: tuple[str, ...]
    scale: str
    seeds: int
    runs: Path
    only: str = "*"
    limit: int | None = None  # images per class, to try the whole path
    backbone: str | None = None  # instead of the pre-trained one
    precision: str | None = None  # of its products, instead of the scale's

    def items(self) -> Iterator[Item]:
        """Every cell, in order."""
        for study in self.studies:
            for item in STUDIES[study](self.scale):
                names = (item.method.lower(), f"{item.stream} {item.method}".lower())
                if any(fnmatchcase(name, self.only.lower()) for name in names):
                    yield replace(item, config=self.changed(item.config))

    def folder(self, item: Item, seed: int) -> Path:
        name = f"{item.stream}-{item.run or item.method}".lower().replace(" ", "-")
        return run_folder(self.runs, name, self.seeded(item, seed))

    def seeded(self, item: Item, seed: int) -> Config:
        """The configuration of a cell for one of its seeds; at the small scales a seed draws other images too."""
        config = seeded(item.config, seed)
        if self.scale.startswith("small"):
            config["dataset"]["seed"] = seed
        return config

    def jobs(self, earlier: Results | None = None) -> list[Job]:
        """One for each run that is needed; a configuration that several cells share is one run.

        Seeds that earlier results have with the same values are not run again.
        """
        found: dict[Path, Job] = {}
        items = [(item, set[int]() if earlier is None else self._known(item, earlier)) for item in self.items()]
        for seed in range(self.seeds):
            for item, known in items:
                if seed in known or (item.study == "batches" and seed):
                    continue
                name = f"{item.stream}, {item.method}" + (f" at {item.at}" if item.at is not None else "")
                folder = self.folder(item, seed)
                found.setdefault(folder, Job(f"{name}, seed {seed}", self.seeded(item, seed), folder))
        return list(found.values())

    def _known(self, item: Item, earlier: Results) -> set[int]:
        return known_seeds(earlier, result(item, []).key, likeness(item.config))

    def finished(self, item: Item) -> list[Run]:
        """The finished runs of a cell, one for each seed; runs of further seeds are taken too."""
        asked = [self._finished(item, seed) for seed in range(self.seeds)]
        more = takewhile(bool, (self._finished(item, seed) for seed in count(self.seeds)))
        return [run for run in (*asked, *more) if run is not None]

    def _finished(self, item: Item, seed: int) -> Run | None:
        folder = self.folder(item, seed)
        return read_run(folder) if is_finished(folder, self.seeded(item, seed)) else None

    def changed(self, config: Config) -> Config:
        """A configuration with what the request wants otherwise."""
        config = copy.deepcopy(config)
        if self.limit is not None:
            for name in ("train_per_class", "test_per_class"):
                config["dataset"][name] = min(self.limit, config["dataset"][name] or self.limit)
        if self.backbone is not None and config["backbone"]["name"] not in UNTRAINED:
            config["backbone"]["name"] = self.backbone
        if self.precision is not None and "precision" in config["backbone"]:
            config["backbone"]["precision"] = self.precision
        return config


def seeded(config: Config, seed: int) -> Config:
    """The configuration with another seed in every table that has one."""
    config = copy.deepcopy(config) | {"seed": seed}
    for table in ("learner", "plan", "backbone"):
        if "seed" in config[table]:
            config[table]["seed"] = seed
    return config


def names_of(target: str, scale: str = "mini") -> tuple[str, ...]:
    """The studies that the command's argument stands for, at a scale."""
    if target == "all":
        return studies_at(scale)
    if target not in STUDIES:
        raise ConfigError(f"{target!r}: no such table or figure; {nearest(target, (*STUDIES, 'all'))}")
    if target not in studies_at(scale):
        raise ConfigError(
            f"{target}: its stream is not there at --scale {scale}; there are {', '.join(studies_at(scale))}"
        )
    return (target,)


def checked(jobs: Sequence[Job]) -> tuple[list[Job], float]:
    """The jobs with their costs, and the seconds that one worker is expected to need for what is left of them.

    Each job is built once, so that every configuration that cannot run is reported before any run starts.
    """
    cache, errors = SharedCache(), dict[str, str]()
    costed, seconds, pace = [], 0.0, dict[str, float]()
    for job in jobs:
        try:
            built: Built = build(job.config, cache)
        except (ConfigError, OSError) as error:
            errors.setdefault(str(error), job.name)
            continue
        kind = repr((job.config["backbone"], built.learner.view))
        if kind not in pace:
            pace[kind] = seconds_per_pass(built)
        costed.append(replace(job, work=max(work(built) * pace[kind], 1e-3)))
        seconds += costed[-1].work * (1 - share_done(job))
    if errors:
        raise ConfigError("; ".join(f"{name}: {error}" for error, name in errors.items()))
    return costed, seconds


def collect(request: Request, *, test_again: bool = True) -> Results:
    """The results of the finished runs; a cell without a finished run is an empty result.

    A run that was not tested with other batches yet is tested now, or without `test_again` left out of that study.
    """
    results, cache = Results(), SharedCache(request.runs / FEATURES)
    for item in request.items():
        runs = request.finished(item)
        found = results.studies.setdefault(item.study, [])
        if item.study != "batches":
            found.append(replace(result(item, runs), values=likeness(item.config)))
        elif runs and (test_again or is_tested(runs[0].path)):
            found += batch_results(item, runs[0], batch_counts(item.config, runs[0].path, cache))
        if item.study == "figure3" and runs and (shares := prompt_shares(runs[0])) is not None:
            results.shares[item.stream] = shares
    if "batches" in results.studies:  # by order of the test images first
        results.studies["batches"].sort(key=lambda each: ORDERS.index(each.group))
    return results
