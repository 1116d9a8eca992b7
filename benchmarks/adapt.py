"""When prompts are worth having for the closed form: what the first task says, and what later tasks then show.

    python benchmarks/adapt.py glyphs-validation --tasks 6
    python benchmarks/adapt.py cifar100 --weights FILE --image-size 112

Later tasks are judged on held-out images of the training set (of drawn characters, on the test images of characters
that are in no table). The first task is judged by its training images alone, in four ways: other classes than those
that taught the prompts, told from all classes (the rule of `adapt = "auto"`) or from each other; other images of the
same classes; and the very images that taught them. Where images are judged that the closed form has learned, each is
left out of its sums. What was found takes the place of earlier lines of the same setting in the file `--out`. Rows that
were read stay in the folder `--rows`, and a second call goes on.
"""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from promptpool.backbones.features import FrozenFeatures
from promptpool.data.stream import Examples, concatenate
from promptpool.experiments.build import build
from promptpool.experiments.config import load_config
from promptpool.files import write_whole
from promptpool.learners import adaptation
from promptpool.learners.adaptation import PromptedBackbone, learn_prompts, prompted_learner
from promptpool.learners.closed_form import ClosedForm
from promptpool.learners.trial import compared, halves
from promptpool.prompts import STARTS

ONE_IN = 5  # images of a class is held out, to judge by other images
SETTING = ["weights", "images per class", "tasks", "seed", "start", "precision"]
Line = list[str]  # of a table
HEADER = [*SETTING, "judged on", "images", "without prompts", "with prompts", "gain", "standard error"]


class Setting(NamedTuple):
    """A stream's first tasks, and where the rows that were read of them stay."""

    learner: ClosedForm
    first: Examples
    train: Examples  # of all tasks, the first one at the beginning
    test: Examples
    rows: Path

    def plain(self, some: Examples) -> Tensor:
        """What is read of images without prompts: [n, d]."""
        return self._kept("plain", lambda: _read(self.learner.frozen, some))

    def prompted(self, name: str, taught: Examples, some: Examples) -> Tensor:
        """What is read of images with the prompts that others taught: [n, d]."""

        def make() -> Tensor:
            backbone, view = self.learner.vit[0], self.learner.view
            learner = prompted_learner(backbone, view, self.learner.seed)
            learn_prompts(learner, taught)
            pool = learner.pool.requires_grad_(False).eval()
            return _read(FrozenFeatures(PromptedBackbone(backbone, pool), view, self.learner.readout), some)

        return self._kept(name, make)

    def _kept(self, name: str, make: Callable[[], Tensor]) -> Tensor:
        path = self.rows / f"{name}.safetensors"
        if not path.exists():
            self.rows.mkdir(parents=True, exist_ok=True)
            write_whole(path, save({"rows": make()}))
        return load_file(path)["rows"]

    def taught(self, rows: Tensor, labels: Tensor) -> ClosedForm:
        """A closed form that has learned rows, with or without those of prompts beside them."""
        adapt = "none" if rows.shape[1] == self.learner.frozen.width else "prompts"
        learner = ClosedForm(self.learner.backbone, self.learner.view, adapt=adapt, keep="features")
        learner.add_rows(rows, labels, torch.arange(len(labels)))
        return learner

    def left_out(self, rows: Tensor, labels: Tensor) -> Tensor:
        """Which examples are right, each left out of the sums: [n]."""
        return self.taught(rows, labels).leave_one_out(rows, labels).argmax(dim=1) == labels


@torch.no_grad()
def _read(store: FrozenFeatures, some: Examples) -> Tensor:
    store.expect(some)
    return torch.cat([store(batch).half() for batch in some.batches(64)])


def line(title: str, without: Tensor, within: Tensor) -> Line:
    """A line of the table: per cent right without and with prompts, the gain and its standard error."""
    trial = compared(within.double() - without.double())
    shares = [f"{100 * float(right.double().mean()):.1f}" for right in (without, within)]
    return [title, str(len(without)), *shares, f"{100 * trial.gain:+.1f}", f"{100 * trial.error:.1f}"]


def judge_other_classes(setting: Setting, plain: Tensor) -> Iterator[Line]:
    """Judge each half of the classes with the prompts of the other: among all classes, and among themselves."""
    first, labels = setting.first, setting.first.y
    among_all = torch.zeros(len(first), dtype=torch.bool)
    within, without = among_all.clone(), among_all.clone()
    for number, half in enumerate(halves(torch.tensor(first.classes), setting.learner.seed)):
        own = torch.isin(labels, half)
        both = torch.cat([plain, setting.prompted(f"half-{number}", first.select(own), first)], dim=1)
        among_all[~own] = setting.left_out(both, labels)[~own]
        without[~own], within[~own] = (setting.left_out(rows[~own], labels[~own]) for rows in (plain, both))
    yield line("first task, other classes among all (the rule)", setting.left_out(plain, labels), among_all)
    yield line("first task, other classes among themselves", without, within)


def judge_other_images(setting: Setting, plain: Tensor) -> Line:
    first, labels = setting.first, setting.first.y
    held = torch.zeros(len(first), dtype=torch.bool)
    for label in first.classes:
        own = (labels == label).nonzero().flatten()
        held[own[: max(len(own) // ONE_IN, 1)]] = True
    both = torch.cat([plain, setting.prompted("other-images", first.select(~held), first)], dim=1)
    without, within = (
        setting.taught(rows[~held], labels[~held]).score(rows[held]).argmax(dim=1) == labels[held]
        for rows in (plain, both)
    )
    return line("first task, other images of the same classes", without, within)


def judge_later_tasks(setting: Setting, plain: Tensor, both: Tensor, tasks: int) -> Iterator[Line]:
    count, labels = len(setting.train), setting.test.y
    without, within = (
        setting.taught(rows[:count], setting.train.y).score(rows[count:]).argmax(dim=1) == labels
        for rows in (plain, both)
    )
    later = ~torch.isin(labels, torch.tensor(setting.first.classes))
    yield line(f"held-out images after {tasks} tasks, later classes", without[later], within[later])
    yield line(f"held-out images after {tasks} tasks, all classes", without, within)


def judge(setting: Setting, tasks: int) -> Iterator[Line]:
    some, first = concatenate([setting.train, setting.test]), len(setting.first)
    plain = setting.plain(some)
    yield from judge_other_classes(setting, plain[:first])
    both = torch.cat([plain, setting.prompted("all", setting.first, some)], dim=1)
    labels = setting.first.y
    without, within = (setting.left_out(rows[:first], labels) for rows in (plain, both))
    yield line("first task, the images that taught the prompts", without, within)
    yield from judge_later_tasks(setting, plain, both, tasks)
    yield judge_other_images(setting, plain[:first])


def written(path: Path, setting: Line, found: Sequence[Line]) -> None:
    """Put lines in the place of those that a file had of the same setting."""
    table = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))[1:] if path.exists() else []
    others = [each for each in table if each[: len(setting)] != setting]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([HEADER, *others, *([*setting, *each] for each in found)])
    write_whole(path, text.getvalue().encode())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", choices=("glyphs-validation", "cifar100"))
    parser.add_argument("--weights", default="vit-glyphs")
    parser.add_argument("--image-size", type=int, help="where the weights are not those in the package")
    parser.add_argument("--images", type=int, default=25, help="training images per class")
    parser.add_argument("--tasks", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", choices=STARTS, help="how prompts start, if not as the closed form has it")
    parser.add_argument("--precision", default="single", help="of the transformer's products")
    parser.add_argument("--rows", type=Path, default=Path("runs/adapt"))
    parser.add_argument("--out", type=Path, default=Path("runs/adapt/adapt.csv"))
    given = parser.parse_args(arguments)
    values = [f"backbone.name={given.weights}", f"dataset.train_per_class={given.images}", f"seed={given.seed}"]
    if given.image_size is not None:
        values += [f"backbone.image_size={given.image_size}"]
    if given.benchmark == "cifar100":
        values += ["dataset.test_per_class=none", "dataset.held_out=20"]
    if given.start:
        adaptation.VALUES["start_from"] = given.start
    values += [f"backbone.precision={given.precision}"]
    scale = "small" if given.benchmark == "cifar100" else "mini"
    built = build(load_config(f"{given.benchmark}-closed-form-prompts", values, scale=scale))
    if not isinstance(built.learner, ClosedForm):
        raise TypeError(f"{type(built.learner).__name__}: prompts are tried for the closed form")
    start = adaptation.VALUES["start_from"]
    setting = [Path(given.weights).stem, *map(str, (given.images, given.tasks, given.seed)), start, given.precision]
    rows = given.rows / "-".join([given.benchmark, *setting])
    trains = [experience.train for experience in built.stream.experiences[: given.tasks]]
    tests = concatenate(built.stream.tests[: given.tasks])
    found = []
    for each in judge(Setting(built.learner, trains[0], concatenate(trains), tests, rows), given.tasks):
        print("  ".join(each), flush=True)
        found.append(each)
    written(given.out, setting, found)


if __name__ == "__main__":
    main()
