"""L2P beside a method that forgets, in twenty lines of your own: about half a minute, no downloads.

    python examples/quickstart.py

The stream is thirty drawn characters in five tasks, the frozen transformer the small ViT that comes with the package.
Put your own arrays in place of `drawn()` (see `from_arrays`) and `load_backbone("ViT-B_16.npz")` for the ViT.
"""

from __future__ import annotations

from promptpool.backbones.weights import load_backbone
from promptpool.data.glyphs import glyphs100
from promptpool.data.scenarios import class_incremental
from promptpool.data.stream import Examples, Stream
from promptpool.data.views import ImageView
from promptpool.learners import LEARNERS
from promptpool.metrics import average_accuracy, forgetting
from promptpool.training import Plan, accuracy_matrix, learn

CLASSES = 30


def drawn() -> Stream:
    """Five tasks of six characters, ten images of each to learn from."""
    train, test, names, _ = glyphs100(train_per_class=10, test_per_class=10)
    return class_incremental(first(train), first(test), names[:CLASSES], tasks=5)


def first(part: Examples) -> Examples:
    return part.select((part.y < CLASSES).nonzero().flatten())


def main() -> None:
    stream, backbone = drawn(), load_backbone("vit-glyphs")
    view = ImageView(backbone.image_size, values=backbone.values or "unit")
    print(f"{'method':16}accuracy after each task, %{'':10}average  forgetting")
    for name, rate in {"ft-seq": 0.0003, "ft-seq-frozen": 0.01, "l2p": 0.02}.items():
        values = {"prompt_length": 1} if name == "l2p" else {}
        learner = LEARNERS[name](backbone, view, **values)
        records = []
        print(f"{name:16}", end="", flush=True)
        for record in learn(learner, stream, Plan(epochs=5, batch_size=16, learning_rate=rate)):
            records.append(record)
            known = [share for share in record.accuracy if share is not None]
            print(f"{100 * sum(known) / len(known):7.1f}", end="", flush=True)
        matrix = accuracy_matrix(records)
        print(f"{100 * average_accuracy(matrix):10.1f}{100 * forgetting(matrix):12.1f}")


if __name__ == "__main__":
    main()
