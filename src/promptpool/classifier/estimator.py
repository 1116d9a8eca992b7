"""The classifier that goes on learning, with the habits of scikit-learn.

    estimator = ContinualEstimator("facebook/dinov2-small").fit(images, labels)
    estimator.partial_fit(more_images, more_labels)       new classes, or known ones that look different now
    estimator.score(test_images, test_labels)

What is particular here:
- `fit` starts anew and `partial_fit` goes on. A class may come at any time: `classes_` grows, and stays sorted.
- Rows of flattened images are read with `image_shape`, numbers that are no uint8 with `pixel_range`.
- Frozen features come from the folder that runs share, so that a search computes each once for each readout.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from promptpool.backbones.feature_files import limit
from promptpool.classifier.answers import Prediction
from promptpool.classifier.arrays import Array, images_of, pictures_of
from promptpool.classifier.classifier import METHOD, ContinualClassifier
from promptpool.classifier.pictures import UNKNOWN
from promptpool.errors import BadFileError
from promptpool.files import cache_folder

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import assert_all_finite
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("ContinualEstimator needs the extra: pip install 'promptpool[sklearn]'") from error

READING = ("image_shape", "pixel_range")  # keywords that say how X is read
FEW = 64
KINDS = {"U": "text", "O": "text", "S": "bytes", "b": "truth values", "i": "integers", "u": "integers", "f": "floats"}


class ContinualEstimator(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A `ContinualClassifier` as an estimator of scikit-learn, for pipelines, cross-validation and searches.

    X is an array of uint8, [n, H, W], [n, H, W, C] or [n, C, H, W]; a list or an array of paths; or a list of PIL
    images. y is text or integers, and `classes_` has its type. The classifier itself is `classifier_`.

    Pickles of it are for processes of one's own, as joblib makes them. The file to keep and to share is that of
    `estimator.classifier_.save(folder)`, which `ContinualClassifier.load` reads without running code.

    Keywords:
        `backbone`: a hub name or a file; the model of the package, "vit-glyphs", knows drawn characters only.
        `method`: a learner's name, see `promptpool list methods`.
        `values`: keywords of that learner, such as {"projections": 500}.
        `image_size`: the side of the images that the backbone reads; None for its own.
        `held_out`: the share of each class of a lesson that is held out and judged. Methods other than the closed form
            never learn it, and calibrate `predict_proba` on it; by default all of X is learned.
        `rehearse`: how many pictures of each class a method with a memory keeps.
        `seed`: the seed of all random numbers.
        `image_shape`: of rows of flattened images, such as (28, 28) or (3, 32, 32); None if X has images.
        `pixel_range`: the numbers for black and white, such as (0, 1), where an array X is not uint8.
    """

    classes_: Array
    classifier_: ContinualClassifier

    def __init__(
        self,
        backbone: str | Path = "vit-glyphs",
        *,
        method: str = METHOD,
        values: dict[str, Any] | None = None,
        image_size: int | None = None,
        held_out: float = 0.0,
        rehearse: int | None = None,
        seed: int = 0,
        image_shape: tuple[int, ...] | None = None,
        pixel_range: tuple[float, float] | None = None,
    ) -> None:
        self.backbone = backbone
        self.method = method
        self.values = values
        self.image_size = image_size
        self.held_out = held_out
        self.rehearse = rehearse
        self.seed = seed
        self.image_shape = image_shape
        self.pixel_range = pixel_range

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from nothing."""
        return self._learn(X, y, None, anew=True)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Go on with what was learned; `classes` are labels that have a column from now on, with pictures or without.

        Unlike elsewhere in scikit-learn they need not be given: labels that were never seen make new classes.
        """
        return self._learn(X, y, classes, anew=not hasattr(self, "classifier_"))

    def _learn(self, X: Any, y: Any, classes: Any, *, anew: bool) -> Self:
        labels, pictures = self._labels(y), self._pictures(X, reset=anew)
        check_consistent_length(pictures, labels)
        announced = labels if classes is None else np.asarray(classes)
        known = _united([labels, announced] if anew else [self.classes_, labels, announced])
        classifier, made_with = self._classifier(anew=anew)
        with _features_kept(classifier, len(pictures)):
            classifier.learn(pictures, [_text(label) for label in labels])
        self.classifier_, self.classes_, self._made_with = classifier, known, made_with
        return self

    def _classifier(self, *, anew: bool) -> tuple[ContinualClassifier, dict[str, Any]]:
        """A new classifier or the present one, and the keywords that it was made with."""
        given = {name: value for name, value in self.get_params().items() if name not in READING}
        if anew:
            values = {name: value for name, value in given.items() if name != "values"}
            return ContinualClassifier(**values, **(self.values or {})), given
        for name, value in given.items():
            if value != self._made_with[name]:
                raise ValueError(f"{name} = {value!r}: was {self._made_with[name]!r} when this was fitted; fit anew")
        return self.classifier_, given

    def predict(self, X: Any, *, unknown: Any = None) -> Array:
        """The most probable class of each picture.

        With `unknown`, which is of the classes' kind, such as -1 or "unknown", that is the answer for pictures like
        none that were learned. The closed form can tell, and other methods with pictures that were `held_out`.
        """
        found: Array
        if unknown is None:
            best = self.predict_proba(X).argmax(axis=1)
            found = self.classes_[best]
            return found
        pictures, calibration = self._asked(X), self.classifier_.known.calibration
        other, kind = np.asarray([unknown]), _kind(self.classes_)
        if _kind(other) != kind:
            raise ValueError(f"unknown = {unknown!r}: must be of the classes' kind, {kind}")
        if calibration.farthest is None and calibration.least is None:
            raise ValueError(f"unknown = {unknown!r}: method = {self.method!r} cannot tell after what it has learned")
        with _features_kept(self.classifier_, len(pictures)):
            answers = [_checked(answer) for answer in self.classifier_.predictions(pictures, top=1)]
        columns = self._columns
        found = self.classes_[[columns[answer.guess] for answer in answers]]
        return np.where([answer.label == UNKNOWN for answer in answers], other, found)

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """How probable each class is, in the order of `classes_`: [n, C]."""
        pictures = self._asked(X)
        with _features_kept(self.classifier_, len(pictures)):
            known = self.classifier_.predict_proba(pictures)
        columns = self._columns
        shares = np.zeros((len(pictures), len(columns)))
        shares[:, [columns[label] for label in self.classifier_.labels]] = known
        return shares

    def _asked(self, X: Any) -> list[Any]:
        check_is_fitted(self, "classifier_")
        return self._pictures(X, reset=False)

    @property
    def _columns(self) -> dict[str, int]:
        """The place of each class among `classes_`, by what it is called in the classifier."""
        return {_text(label): column for column, label in enumerate(self.classes_)}

    def _labels(self, y: Any) -> Array:
        if y is None:
            raise ValueError("ContinualEstimator requires y to be passed, but the target y is None")
        labels: Array = column_or_1d(y, warn=True)
        assert_all_finite(labels, input_name="y")
        check_classification_targets(labels)
        return labels

    def _pictures(self, X: Any, *, reset: bool) -> list[Any]:
        if self.image_shape is None:
            return pictures_of(X, pixel_range=self.pixel_range)
        rows = validate_data(self, X, reset=reset)
        return pictures_of(images_of(rows, self.image_shape), pixel_range=self.pixel_range)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = self.image_shape is not None
        tags.input_tags.three_d_array = tags.input_tags.string = self.image_shape is None
        return tags


@contextmanager
def _features_kept(classifier: ContinualClassifier, pictures: int) -> Iterator[None]:
    """While this lasts, frozen features are those that other fits have computed, and new ones are kept for them.

    For a few pictures a look into the folder would take longer than the backbone.
    """
    learner = classifier.learner
    if pictures < FEW or not learner.reads_frozen or limit() == 0:
        yield
        return
    classifier.holds_features = True
    learner.frozen.share(cache_folder() / "features")
    try:
        yield
    finally:
        classifier.holds_features = False
        learner.keep_features()
        classifier._empty_stores()


def _checked(answer: Prediction) -> Prediction:
    if answer.error:
        raise BadFileError(f"{answer.name}: {answer.error}")
    return answer


def _united(parts: list[Array]) -> Array:
    """The different labels of all parts, sorted."""
    kinds = sorted({_kind(part) for part in parts})
    if len(kinds) > 1:
        raise ValueError(f"labels are {' and '.join(kinds)}: must be of one kind")
    return np.unique(np.concatenate(parts))


def _kind(labels: Array) -> str:
    return KINDS.get(labels.dtype.kind, str(labels.dtype))


def _text(label: Any) -> str:
    """What a label is called in the classifier."""
    return str(label.item() if isinstance(label, np.generic) else label)
