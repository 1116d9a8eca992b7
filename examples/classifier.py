"""A classifier that goes on learning, from drawn characters and without a download.

    python examples/classifier.py

Three lessons of five classes each come one after the other. The classifier answers with one of the classes it knows or
says that it knows none like it; it forgets a class on request; and it lies in a folder of a few hundred kilobytes.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from promptpool import ContinualClassifier
from promptpool.data.glyphs.sets import glyphs100

CLASSES = 5


def main() -> None:
    characters = glyphs100(train_per_class=20, test_per_class=10)
    classifier = ContinualClassifier()  # for photographs: ContinualClassifier("facebook/dinov2-small")
    for number, month in enumerate(("January", "February", "March")):
        first, last = CLASSES * number, CLASSES * (number + 1)
        own = characters.train.select((characters.train.y >= first) & (characters.train.y < last)).batch(slice(None))
        lesson = classifier.learn(own.x, [f"character {label}" for label in own.y.tolist()])
        print(f"{month}: {lesson.pictures} pictures, {len(classifier.labels)} classes", end="")
        print("" if lesson.after is None else f", earlier ones {100 * lesson.after:.0f} % right")

    known = characters.test.select(characters.test.y < 3 * CLASSES).batch(slice(None))
    strange = characters.test.select(characters.test.y >= 3 * CLASSES).batch(slice(None))
    answers = classifier.predict(known.x)
    right = [answer.guess == f"character {label}" for answer, label in zip(answers, known.y.tolist(), strict=True)]
    print(f"new pictures of known classes: {100 * sum(right) / len(right):.0f} % right")
    refused = [answer.label == "unknown" for answer in classifier.predict(strange.x)]
    print(f"pictures of other classes: {100 * sum(refused) / len(refused):.0f} % answered with unknown")

    classifier.forget("character 3")
    with tempfile.TemporaryDirectory() as folder:
        classifier.save(Path(folder) / "characters")
        again = ContinualClassifier.load(Path(folder) / "characters")
        size = (Path(folder) / "characters" / "model.safetensors").stat().st_size
        print(f"saved, {size / 1000:.0f} kB: {len(again.labels)} classes, without character 3")


if __name__ == "__main__":
    main()
