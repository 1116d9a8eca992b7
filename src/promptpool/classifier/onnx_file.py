"""A classifier in one ONNX file, for whoever has onnxruntime and no promptpool.

The input is `pixels`, uint8 [n, 3, S, S] with any n. Outputs are `logits`, `probabilities` and, with the closed form,
`distance` (`graph.py`). Everything else one needs is in the file's metadata, as text:

    labels          a JSON list: the class of each column
    image_size      S
    method, backbone, backbone_hash, promptpool
    temperature     what logits are divided by in `probabilities`
    farthest        a picture with a greater `distance` is "unknown"; "inf" where there are no distances
    least           and one with a lesser best probability; "0.0" where the distance decides

A file is written only if onnxruntime, fed with it, agrees with the classifier on drawn pictures and on those that it
remembers.
"""

from __future__ import annotations

import json
import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from promptpool import __version__
from promptpool.classifier.graph import Graph, graph_of, known_classes
from promptpool.errors import BadFileError
from promptpool.files import write_whole

if TYPE_CHECKING:
    from promptpool.classifier.classifier import ContinualClassifier

OUTPUTS = ("logits", "probabilities", "distance")
LARGEST = 2**31 - 2**20  # bytes of one ONNX file, which is one message of protobuf
BATCHES = (1, 3, 8)  # sizes of batches that are tried
REMEMBERED = 64  # pictures of a memory that are looked at
TOLERANCE = 1e-3  # what two scores may differ by, as a share of the spread of all; a lesser lead is none


class Agreement(NamedTuple):
    """How well an exported file agrees with its classifier."""

    pictures: int
    difference: float  # the largest between two scores, as a share of the spread of all


def export_onnx(classifier: ContinualClassifier, path: Path) -> Agreement:
    """Write a classifier to an ONNX file, and say how well it agrees; if it does not, raise and write nothing."""
    _check_packages()
    if path.is_dir():
        raise BadFileError(f"{path}: is a folder, and an ONNX model is a file")
    content = _content(graph_of(classifier), _described(classifier), classifier.backbone.image_size)
    agreement = compare(classifier, content)
    write_whole(path, content)
    return agreement


def _check_packages() -> None:
    try:
        import onnx
        import onnxruntime
        import onnxscript
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"ONNX needs more packages ({error.name}): pip install 'promptpool[onnx]'") from error
    del onnx, onnxruntime, onnxscript


def _described(classifier: ContinualClassifier) -> dict[str, str]:
    """The metadata."""
    name, calibration = Path(classifier.backbone_name), classifier.known.calibration
    return {
        "labels": json.dumps([classifier.known.labels[number] for number in known_classes(classifier)]),
        "image_size": str(classifier.backbone.image_size),
        "method": classifier.method,
        "backbone": name.name if name.is_absolute() else classifier.backbone_name,
        "backbone_hash": classifier.backbone.origin,
        "temperature": repr(calibration.temperature),
        "farthest": repr(math.inf if calibration.farthest is None else calibration.farthest),
        "least": repr(0.0 if calibration.least is None else calibration.least),
        "promptpool": __version__,
    }


def _content(graph: Graph, metadata: dict[str, str], size: int) -> bytes:
    """The bytes of the file."""
    tensors = (*graph.parameters(), *graph.buffers())
    needed = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    if needed > LARGEST:
        raise ValueError(
            f"the model takes {needed / 1e9:.1f} GB: one ONNX file holds at most 2, use a smaller backbone"
        )
    example = torch.zeros(2, 3, size, size, dtype=torch.uint8)
    outputs = OUTPUTS[: len(graph(example))]
    with _quiet():
        program: Any = torch.onnx.export(
            graph,
            (example,),
            input_names=["pixels"],
            output_names=list(outputs),
            dynamic_shapes={"pixels": {0: torch.export.Dim("n")}},
            dynamo=True,
            verbose=False,
        )
    model = program.model_proto
    _strip(model.graph)
    for name, value in metadata.items():
        model.metadata_props.add(key=name, value=value)
    return bytes(model.SerializeToString())


@contextmanager
def _quiet() -> Iterator[None]:
    """No word of the exporter about itself and about packages that it does not need."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


def _strip(graph: Any) -> None:
    """Take out where in our source each node comes from, with the paths of this machine."""
    for part in (graph, *graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer):
        del part.metadata_props[:]
        part.doc_string = ""


def compare(classifier: ContinualClassifier, content: bytes) -> Agreement:
    """Raise a RuntimeError unless onnxruntime, fed with this content, answers as the classifier does."""
    pictures, known = known_pictures(classifier), known_classes(classifier)
    asked = classifier.ask(pictures)
    scores = asked.scores[:, known].double()
    logits, _, *distance = answers(content, pictures)
    spread = _spread(scores)
    difference = float((logits - scores).abs().max()) / spread
    if not difference <= TOLERANCE:
        raise RuntimeError(
            f"the exported model does not agree with the classifier: scores differ by {difference:.1e} of their "
            f"spread, more than {TOLERANCE:g}; nothing was written"
        )
    best = logits.argmax(dim=1, keepdim=True)
    wrong = scores.max(dim=1).values - scores.gather(1, best)[:, 0] > TOLERANCE * spread
    farthest = classifier.known.calibration.farthest
    if distance and farthest is not None and asked.far is not None:
        beyond = distance[0] - farthest
        wrong |= ((beyond > 0) != (asked.far > farthest)) & (beyond.abs() > TOLERANCE * _spread(distance[0]))
    if wrong.any():
        raise RuntimeError(
            f"the exported model does not agree with the classifier: {int(wrong.sum())} of {len(pictures)} pictures "
            "get another answer; nothing was written"
        )
    return Agreement(len(pictures), difference)


def answers(content: bytes, pictures: Tensor) -> list[Tensor]:
    """What onnxruntime makes of pictures, in batches of several sizes; each output in double precision."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    first, others = pictures[: sum(BATCHES)], pictures[sum(BATCHES) :]
    batches = [*first.split(BATCHES), *(others.split(BATCHES[-1]) if len(others) else ())]
    parts = [session.run(None, {"pixels": batch.numpy()}) for batch in batches]
    return [torch.cat([torch.from_numpy(each) for each in output]).double() for output in zip(*parts, strict=True)]


def known_pictures(classifier: ContinualClassifier) -> Tensor:
    """Pictures to compare on: drawn ones, always the same, and those of the method's memory: [n, 3, size, size]."""
    size, generator = classifier.backbone.image_size, torch.Generator().manual_seed(0)
    drawn = []
    for number in range(sum(BATCHES)):
        cells = 2 ** (number % 6 + 1)  # coarse patches of colour to fine noise
        colours = torch.randint(0, 256, (1, 3, cells, cells), generator=generator).float()
        drawn.append(F.interpolate(colours, (size, size), mode="bilinear").to(torch.uint8))
    memory = classifier.learner.memory
    return torch.cat([*drawn, *([memory.rows.x[:REMEMBERED]] if memory else [])])


def _spread(values: Tensor) -> float:
    """From the least to the greatest; where all are equal, how great they are."""
    return float(values.max() - values.min()) or float(values.abs().max()) or 1.0
