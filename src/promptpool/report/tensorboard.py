"""Run folders as TensorBoard logs; needs the extra `tensorboard`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from promptpool.training.run_folder import Run


def write_tensorboard(runs: Sequence[Run], folder: Path) -> Path:
    """One log per run: accuracy on each test set, their mean, the loss and the prompts in use after each experience."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "TensorBoard logs need one more package: pip install 'promptpool[tensorboard]'"
        ) from error
    for run in runs:
        with SummaryWriter(str(folder / run.name)) as log:
            for record in run.records:
                for name, value in scalars(run, record.experience).items():
                    log.add_scalar(name, value, record.experience + 1)
    return folder


def scalars(run: Run, experience: int) -> dict[str, float]:
    """The numbers of one record, by their names in the log."""
    record = run.records[experience]
    known = {i: share for i, share in enumerate(record.accuracy) if share is not None}
    values = {f"accuracy/test {i + 1}": share for i, share in known.items()}
    if known:
        values["accuracy/mean"] = sum(known.values()) / len(known)
    if record.loss is not None:
        values["loss"] = record.loss
    if "prompts_in_use" in record.facts:
        values["prompts in use"] = record.facts["prompts_in_use"]
    return values
