"""The floor of benchmarks/floor.py beside what a step really multiplies, as torch counts it.

Attention is computed by plain products here (`SDPBackend.MATH`), since torch counts none within its fused operator.
"""

from __future__ import annotations

import pytest
import torch
from floor import Floor, Shape, backward, forward
from models import shape_of
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from promptpool.backbones.chunks import CHUNK
from promptpool.backbones.vit import ViT
from promptpool.data.stream import Batch
from promptpool.learners.l2p import L2P
from promptpool.optim import Descent
from toys import CLASSES, VIEW, toy_examples

DEPTHS = pytest.mark.parametrize("depth", [2, 3, 5])


def material(depth: int) -> tuple[L2P, Batch, Shape]:
    """An L2P whose sizes differ, with a batch whose queries and tokens are kept."""
    vit = ViT(image_size=8, patch_size=4, dim=16, depth=depth, heads=2, mlp_dim=40)
    learner = L2P(vit.start(torch.Generator().manual_seed(0)).eval(), VIEW, pool_size=7, top_k=2, prompt_length=2)
    learner.add_classes(range(CLASSES))
    batch = toy_examples(2, 1).batch(slice(None))
    with torch.no_grad():
        learner.logits(batch)
    return learner, batch, shape_of(learner, len(batch.y))


def trained(learner: L2P, batch: Batch) -> int:
    """The operations that a step counts."""
    descend = Descent([p for p in learner.parameters() if p.requires_grad])
    learner.train()
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        learner.step(batch, descend)
    return int(counter.get_total_flops())


def evaluated(learner: L2P, batch: Batch) -> int:
    """The operations that the scores of a batch count."""
    learner.eval()
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        learner.logits(batch)
    return int(counter.get_total_flops())


@DEPTHS
def test_evaluation_multiplies_what_the_floor_has_and_no_more(depth: int) -> None:
    learner, batch, shape = material(depth)
    assert evaluated(learner, batch) == sum(product.operations for product in forward(shape))


@DEPTHS
def test_a_step_multiplies_beyond_the_floor_in_the_first_block_alone(depth: int) -> None:
    """This surplus is all that our step does beyond the floor: its gradient goes on to the rows of images, unread.

    In queries, keys and values it is the rows of images. In attention ours are the four products of a whole block,
    [T, d] x [d, T] and three of [T, T] x [T, d]; the floor has five, with the R rows of prompts in the place of a T.
    """
    learner, batch, shape = material(depth)
    floor = sum(product.operations for product in (*forward(shape), *backward(shape)))
    of_images = 2 * shape.batch * shape.tokens * 3 * shape.dim * shape.dim
    attention = 2 * shape.batch * shape.length * shape.dim * (4 * shape.length - 5 * shape.rows)
    assert trained(learner, batch) == floor + of_images + attention


def test_what_is_not_kept_is_multiplied_again() -> None:
    learner, batch, shape = material(3)
    learner.frozen.drop_tokens()
    patches = shape.tokens - 1
    embedded = -(-shape.batch // CHUNK) * CHUNK  # whole chunks
    embedding = 2 * embedded * patches * 3 * 4 * 4 * shape.dim  # pixels of a patch to a token
    floor = sum(product.operations for product in forward(shape))
    assert evaluated(learner, batch) == floor + embedding


def test_a_floor_times_each_product_and_says_how_fast_they_are() -> None:
    _, _, shape = material(2)
    floor = Floor(forward(shape))
    seconds = [floor() for _ in range(3)]
    assert min(seconds) > 0
    assert sum(found[0] for found in floor.seconds) == pytest.approx(seconds[0])
    _, _, *rows, _, last = floor.lines()
    assert len(rows) == len(forward(shape))
    assert last == floor.pace
    assert last.startswith("0.00 GFLOP at ")
