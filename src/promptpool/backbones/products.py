"""Who computes the matrix products of a transformer's blocks in single precision on a CPU.

torch leaves a linear layer to the BLAS it was built with, which is Intel's MKL in its packages for x86. On processors
of other makers MKL takes the instructions of 2013 (AVX2), also where there are those of AVX-512: less than half of what
such a processor can do. A convolution with kernels of one pixel is the same product, and torch leaves that to oneDNN,
which takes what the processor has. Sums are added up in another order, so digits differ by roundings. `promptpool tune`
says whether it pays, `suited` where it likely does.

What torch would not leave to oneDNN stays a linear layer: few numbers, other than single precision, other devices. So
does what runs in compiled code or an export.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from promptpool.checks import one_of
from promptpool.cores import processor

LEAST = 20480  # numbers: torch gives images up to this size to a slow kernel of its own
Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]  # of rows, weight and bias


def by_convolution(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b, [..., K] with W [N, K] to [..., N]: all rows are the pixels of one image."""
    if torch.compiler.is_compiling() or not _goes_to_onednn(x):
        return F.linear(x, weight, bias)
    pixels = x.reshape(1, -1, 1, x.shape[-1]).permute(0, 3, 1, 2)  # [1, K, rows, 1], channels last
    # A kernel of one pixel can be dilated as one likes; with one thread torch takes oneDNN only if it is.
    found = F.conv2d(pixels, weight[:, :, None, None], bias, dilation=2)
    return found.permute(0, 2, 3, 1).reshape(*x.shape[:-1], weight.shape[0])


def _goes_to_onednn(x: Tensor) -> bool:
    plain = x.device.type == "cpu" and x.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    return plain and x.numel() > LEAST and torch.backends.mkldnn.is_available()


PRODUCTS: dict[str, Product] = {"torch": F.linear, "onednn": by_convolution}


def check_products(products: str, *, compiled: bool, precision: str) -> None:
    """Raise a ValueError if blocks cannot be run so."""
    one_of(PRODUCTS, products=products)
    if compiled and products != "torch":
        raise ValueError(f"products = {products!r}: must be 'torch' with compile = True, whose code has those")
    if precision != "single" and products != "torch":
        raise ValueError(f"products = {products!r}: must be 'torch' with precision = {precision!r}, which has its own")


def suited() -> str:
    """Whose products are likely the faster here: oneDNN's where the processor has AVX-512 and MKL does not take it."""
    both = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
    unused = torch.backends.cpu.get_cpu_capability() == "AVX512" and "AuthenticAMD" in processor("vendor_id")
    return "onednn" if both and unused else "torch"


class Linear(nn.Linear):
    """A linear layer whose product is one of `PRODUCTS`."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.product = PRODUCTS["torch"]

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x, self.weight, self.bias)

    def some(self, x: Tensor, outputs: slice) -> Tensor:
        """These outputs alone."""
        return self.product(x, self.weight[outputs], self.bias[outputs])
