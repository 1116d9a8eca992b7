"""What runs on Ray Serve: the frozen model in some copies, and what was learned, in one.

    Encoder      pictures of all clients and classifiers, gathered into batches, to rows of features
    Heads        rows to answers, by the version that a question names

Neither knows beforehand what it will be asked. A question brings a `Parcel`, which says where in the store of the
cluster the model or the version lies, and a replica keeps what it fetched. So a new version needs no restart and is
swapped in by whoever asks, at one moment; and a replica that takes the place of one that died has nothing to be told.

Methods other than the closed form look at pictures with what they learned, and the encoder answers for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import ray
import torch
from ray import serve
from ray.serve._private import replica

from promptpool.backbones.features import FrozenFeatures
from promptpool.classifier.answers import Prediction
from promptpool.classifier.classifier import ContinualClassifier
from promptpool.data.decoding import Pixels
from promptpool.data.stream import Batch
from promptpool.learners.closed_form import finite
from promptpool.serve.answering import Wish, answers, encoded, with_backbone
from promptpool.serve.limits import Limits

VERSIONS = 2  # of a classifier that a replica keeps: the present one, and that before for questions on their way


class Parcel(NamedTuple):
    """Something in the store of the cluster."""

    owner: str  # the classifier, or the fingerprint of features or a backbone
    number: int  # counts what an owner had; a version's own number comes again after an undo
    reference: Any  # an ObjectRef; here, inside of something, Ray does not fetch it by itself


class Packed(NamedTuple):
    """A classifier or a store of features whose backbone is left out, and where that is; None if nobody needs it."""

    content: Any
    backbone: Parcel | None


class Row(NamedTuple):
    """What was read of a picture; the first of a batch says how many were looked at together."""

    values: npt.NDArray[np.float16]
    together: int


class Kept:
    """What a replica has fetched."""

    def __init__(self) -> None:
        self._found: dict[str, dict[int, Any]] = {}

    async def get(self, parcel: Parcel) -> Any:
        known = self._found.setdefault(parcel.owner, {})
        if parcel.number in known:
            return known[parcel.number]
        found = await parcel.reference
        if isinstance(found, Packed):
            backbone = None if found.backbone is None else await self.get(found.backbone)
            found = found.content if backbone is None else with_backbone(found.content, backbone)
        known[parcel.number] = found
        for old in sorted(known)[:-VERSIONS]:
            del known[old]
        return found


class Encoder:
    """The frozen model; one of several replicas."""

    def __init__(self, threads: int) -> None:
        _listen_here()
        torch.set_num_threads(threads)
        self.kept = Kept()

    async def encode(self, reader: Parcel, picture: Pixels) -> Row:
        """What a store of features reads of a picture."""
        return await self._encode(reader, picture)  # type: ignore[no-any-return]

    @serve.batch(max_batch_size=Limits.batch, batch_wait_timeout_s=Limits.gather)  # type: ignore[untyped-decorator]
    async def _encode(self, readers: list[Parcel], pictures: list[Pixels]) -> list[Row]:
        found: dict[int, Row] = {}
        for reader, places in grouped(readers):
            store: FrozenFeatures = await self.kept.get(reader)
            rows = await asyncio.to_thread(_read, store, [pictures[place] for place in places])
            sizes = [len(places), *[0] * (len(places) - 1)]
            found |= {place: Row(row, size) for place, row, size in zip(places, rows, sizes, strict=True)}
        return [found[place] for place in range(len(pictures))]

    async def answer(self, version: Parcel, pictures: Sequence[Pixels], wishes: Sequence[Wish]) -> list[Prediction]:
        """Answers of a method that looks at the pictures themselves."""
        found = await self._answer(version, pictures, wishes)
        if isinstance(found, ValueError):
            raise found
        return found  # type: ignore[no-any-return]

    @serve.batch(max_batch_size=Limits.batch, batch_wait_timeout_s=Limits.gather)  # type: ignore[untyped-decorator]
    async def _answer(
        self, versions: list[Parcel], pictures: list[Sequence[Pixels]], wishes: list[Sequence[Wish]]
    ) -> list[list[Prediction] | ValueError]:
        """A list for each question; an error is one of its own, so that one does not take others with it."""
        found: dict[int, list[Prediction] | ValueError] = {}
        for version, places in grouped(versions):
            classifier = await self.kept.get(version)
            asked = [(pictures[place], wishes[place]) for place in places]
            told = await asyncio.to_thread(_answered, classifier, asked)
            found |= dict(zip(places, told, strict=True))
        return [found[place] for place in range(len(versions))]


class Heads:
    """What was learned: small, and new with every version."""

    def __init__(self) -> None:
        _listen_here()
        torch.set_num_threads(1)
        self.kept = Kept()

    async def hold(self, version: Parcel) -> None:
        """Have a version here before it is asked for."""
        await self.kept.get(version)

    async def answer(
        self, version: Parcel, rows: Sequence[npt.NDArray[np.float16]], wishes: Sequence[Wish]
    ) -> list[Prediction]:
        classifier: ContinualClassifier = await self.kept.get(version)
        return answers(classifier, finite(torch.from_numpy(np.stack(rows))), wishes)


def _listen_here() -> None:
    """On a node that is 127.0.0.1, have the port of this replica be there too.

    Ray Serve opens it on all addresses when a replica has begun, behind Ray's token, and has no setting for that; we
    do not use it. A Ray that does it by another name keeps its port where it was.
    """
    add_port = getattr(replica, "add_port_to_grpc_server", None)
    if add_port is not None and ray.util.get_node_ip_address() == "127.0.0.1":
        replica.add_port_to_grpc_server = lambda server, address: add_port(server, address.replace("[::]", "127.0.0.1"))


def grouped(parcels: Sequence[Parcel]) -> Iterator[tuple[Parcel, list[int]]]:
    """Each parcel, and the places where it stands."""
    places: dict[tuple[str, int], list[int]] = {}
    for place, parcel in enumerate(parcels):
        places.setdefault((parcel.owner, parcel.number), []).append(place)
    for found in places.values():
        yield parcels[found[0]], found


def _images(pictures: Sequence[Pixels]) -> torch.Tensor:
    return torch.from_numpy(np.stack(pictures))


def _read(store: FrozenFeatures, pictures: Sequence[Pixels]) -> npt.NDArray[np.float16]:
    nothing = torch.zeros(len(pictures), dtype=torch.long)
    rows: npt.NDArray[np.float16] = store(Batch(_images(pictures), nothing, nothing)).cpu().half().numpy()
    return rows


def _answered(
    classifier: ContinualClassifier, questions: Sequence[tuple[Sequence[Pixels], Sequence[Wish]]]
) -> list[list[Prediction] | ValueError]:
    """Answer questions together; if that fails, each alone."""
    images = _images([picture for pictures, _ in questions for picture in pictures])
    try:
        rows = torch.cat([encoded(classifier, part) for part in images.split(Limits.batch)])
        found = iter(answers(classifier, rows, [wish for _, wishes in questions for wish in wishes]))
    except ValueError as error:
        if len(questions) == 1:
            return [error]
        return [_answered(classifier, [question])[0] for question in questions]
    return [[next(found) for _ in wishes] for _, wishes in questions]
