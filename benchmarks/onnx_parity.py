"""How well an exported ONNX file agrees with its classifier, on test images of a published set.

    python benchmarks/onnx_parity.py                                                          drawn characters
    python benchmarks/onnx_parity.py --dataset cifar100 --weights FILE --image-size 112 --methods closed-form l2p

All classes are learned, half of them in each of two lessons.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime
import torch

from promptpool import ContinualClassifier
from promptpool.classifier.pictures import unlabelled
from promptpool.data.sets import DATASETS
from promptpool.data.stream import Examples


def taught(options: argparse.Namespace, method: str, train: Examples, names: list[str]) -> ContinualClassifier:
    classifier = ContinualClassifier(options.weights, method=method, image_size=options.image_size)
    for half in np.array_split(np.arange(len(names)), 2):
        batch = train.select(torch.isin(train.y, torch.from_numpy(half))).batch(slice(None))
        classifier.learn(batch.x, [names[y] for y in batch.y.tolist()])
    return classifier


def compare(classifier: ContinualClassifier, test: Examples, path: Path) -> None:
    begin = time.monotonic()
    agreement = classifier.export_onnx(path)
    exported = time.monotonic() - begin
    found = unlabelled(list(test.batch(slice(None)).x), size=classifier.backbone.image_size)
    pictures = torch.stack([picture.pixels for picture in found if picture.pixels is not None])
    begin = time.monotonic()
    parts = [classifier.ask(part) for part in pictures.split(8)]
    ours = time.monotonic() - begin
    scores = torch.cat([part.scores for part in parts])
    far = torch.cat([part.far for part in parts if part.far is not None]) if parts[0].far is not None else None
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(path, settings)
    begin = time.monotonic()
    runs = [session.run(None, {"pixels": part.numpy()}) for part in pictures.split(8)]
    theirs = time.monotonic() - begin
    logits, _, *distance = (torch.from_numpy(np.concatenate(column)) for column in zip(*runs, strict=True))
    facts = session.get_modelmeta().custom_metadata_map
    known = [classifier.known.labels.index(label) for label in json.loads(facts["labels"])]
    scores = scores[:, known]
    lead = scores.topk(2, dim=1).values
    alike = "-"
    if distance and far is not None:
        farthest = float(facts["farthest"])
        alike = str(int(((distance[0] > farthest) == (far > farthest)).sum()))
    same = int((logits.argmax(dim=1) == scores.argmax(dim=1)).sum())
    spread = float(scores.max() - scores.min())
    print(f"{classifier.method}, {Path(classifier.backbone_name).name} at {classifier.backbone.image_size} pixels")
    print(f"  same class {same} of {len(pictures)}, unknown or not alike {alike}")
    print(f"  scores differ by at most {float((logits - scores).abs().max()):.1e}, {spread:.3g} from least to greatest")
    print(f"  the least lead of a best score is {float((lead[:, 0] - lead[:, 1]).min()):.1e}")
    print(f"  at export: {agreement.pictures} pictures, {agreement.difference:.1e} of the spread")
    print(f"  {path.stat().st_size / 1e6:.1f} MB, exported and checked in {exported:.0f} s")
    print(f"  {1000 * ours / len(pictures):.0f} ms a picture here, {1000 * theirs / len(pictures):.0f} in onnxruntime")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="glyphs100")
    parser.add_argument("--weights", default="vit-glyphs")
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--methods", nargs="+", default=["closed-form", "l2p"])
    parser.add_argument("--train-per-class", type=int, default=5)
    parser.add_argument("--test-per-class", type=int, default=3)
    options = parser.parse_args()
    train, test, names, *_ = DATASETS[options.dataset](
        train_per_class=options.train_per_class, test_per_class=options.test_per_class
    )
    for method in options.methods:
        with tempfile.TemporaryDirectory() as folder:
            compare(taught(options, method, train, list(names)), test, Path(folder) / "classifier.onnx")


if __name__ == "__main__":
    main()
