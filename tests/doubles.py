"""Double precision, where rounding hides nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields

import torch
from torch import Tensor

from promptpool.data.views import ImageView


class DoubleView(ImageView):
    """A view whose inputs are in double precision."""

    def scaled(self, images: Tensor) -> Tensor:
        return super().scaled(images.double())


def double_view(view: ImageView) -> DoubleView:
    """The same view, in double precision."""
    return DoubleView(**{field.name: getattr(view, field.name) for field in fields(view)})


@contextmanager
def double_precision() -> Iterator[None]:
    """What is made within this context is in double precision."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
