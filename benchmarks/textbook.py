"""The textbook L2P: Algorithm 1 of Wang et al. (CVPR 2022) as public code runs it, and nothing that saves work.

    for each batch:
        q = f(x)[0]                                  the first copy of the model, a whole pass, every row of every block
        the N keys nearest to q, for each image
        x_p = [P_s1; ...; P_sN; f_e(x)]              the second copy embeds the image again
        f_r(x_p), every row of every block           a whole pass; the mean of the prompts' rows goes to the head
        loss = CE + pull * sum of distances; backward; clip; Adam

Nothing is kept from one step to the next but what is learned. Only activations have gradients: frozen weights are
frozen here too. Operations are torch's own, the fast ones (fused attention, one product for queries, keys and values),
so that what is compared is the algorithm. No code of the library's step is used: the view, the transformer, the choice
and the loss are written out below, from weights by timm's names. Linear layers are torch's, or with `products="onednn"`
those of `backbones/products.py`: beside a step that has them too, the algorithm again is all that differs.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from promptpool.backbones.products import PRODUCTS
from promptpool.backbones.vit import ViT
from promptpool.data.views import RANGES, ImageView
from promptpool.learners.l2p import L2P

Weights = dict[str, Tensor]  # by timm's names
GELUS = {"exact": "none", "tanh": "tanh"}


class Textbook:
    """Two copies of a frozen ViT, prompts, keys and a head; starts with the values that an L2P learner now has.

    The head has `class_count` rows from the beginning, as in public code; the loss is told which of them count.
    """

    def __init__(
        self,
        learner: L2P,
        *,
        class_count: int,
        learning_rate: float = 0.03,
        clip: float | None = 1.0,
        products: str = "torch",
    ) -> None:
        vit = checked(learner)
        self.original, self.model = Transformer(vit, products), Transformer(vit, products)
        self.view, self.top_k, self.pull = learner.view, learner.top_k, learner.pull
        self.class_first, self.with_position = learner.order == "class-first", learner.position == "class"
        self.unit = float(learner.pool.unit) if learner.start_from != "range" else 1.0
        self.learning_rate, self.clip = learning_rate, clip
        head = learner.head.weight.detach()
        missing = class_count - len(head)
        self.prompts = learner.pool.prompts.detach().clone().requires_grad_(True)  # [M, L_p, D]
        self.keys = learner.pool.keys.detach().clone().requires_grad_(True)  # [M, D]
        self.weight = torch.cat([head, head.new_zeros(missing, head.shape[1])]).requires_grad_(True)  # [C, D]
        self.bias = torch.cat([learner.head.bias.detach(), head.new_zeros(missing)]).requires_grad_(True)  # [C]
        self.begin_task()

    @property
    def parameters(self) -> list[Tensor]:
        return [self.prompts, self.keys, self.weight, self.bias]

    def begin_task(self) -> None:
        """A new optimiser, without momentum."""
        self.optimiser = torch.optim.Adam(self.parameters, lr=self.learning_rate)

    def step(self, x: Tensor, y: Tensor, classes: Sequence[int]) -> Tensor:
        """Learn from raw inputs [B, C, H, W] with labels among `classes`; returns the loss."""
        logits, distance = self.forward(x)
        loss = F.cross_entropy(among(logits, classes), y) + self.pull * distance.mean()
        self.optimiser.zero_grad()
        loss.backward()
        if self.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self.optimiser.step()
        return loss.detach()

    @torch.no_grad()
    def predict(self, x: Tensor, classes: Sequence[int]) -> Tensor:
        """The predicted class of each raw input, among `classes`: [B]."""
        return among(self.forward(x)[0], classes).argmax(dim=1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """A score for each class, [B, C], and the summed distance to the chosen keys, [B]."""
        inputs = viewed(self.view, x.to(self.prompts.dtype))
        with torch.no_grad():
            query = self.original.encode(self.original.embed(inputs))[:, 0]  # [B, D]
        gamma = 1 - F.normalize(query, dim=-1) @ F.normalize(self.keys, dim=-1).T  # [B, M]
        distance, chosen = gamma.topk(self.top_k, largest=False)  # [B, N] each
        prompts = self.unit * self.prompts[chosen].flatten(1, 2)  # [B, N * L_p, D]
        tokens, count = self.model.embed(inputs), prompts.shape[1]
        if self.with_position:
            prompts = prompts + self.model.weights["pos_embed"][:, :1]
        ahead = 1 if self.class_first else 0
        rows = self.model.encode(torch.cat([tokens[:, :ahead], prompts, tokens[:, ahead:]], dim=1))
        return F.linear(rows[:, ahead : ahead + count].mean(dim=1), self.weight, self.bias), distance.sum(dim=1)


class Transformer:
    """A frozen ViT of its own memory."""

    def __init__(self, vit: ViT, products: str) -> None:
        self.product = PRODUCTS[products]
        self.weights: Weights = {name: value.detach().clone() for name, value in vit.state_dict().items()}
        self.depth, self.heads, self.patch_size = vit.depth, vit.heads, vit.patch_size
        self.norm_eps, self.gelu = vit.norm_eps, GELUS[vit.gelu]

    def embed(self, x: Tensor) -> Tensor:
        """Tokens with their positions, [class] first: [B, L, D]."""
        own = self.weights
        patches = F.conv2d(x, own["patch_embed.proj.weight"], own["patch_embed.proj.bias"], stride=self.patch_size)
        patches = patches.flatten(2).transpose(1, 2)
        return torch.cat([own["cls_token"].expand(len(x), -1, -1), patches], dim=1) + own["pos_embed"]

    def encode(self, tokens: Tensor) -> Tensor:
        """The features of all tokens: [B, L, D]."""
        for number in range(self.depth):
            tokens = tokens + self.attention(number, self.normed(f"blocks.{number}.norm1", tokens))
            hidden = self.linear(f"blocks.{number}.mlp.fc1", self.normed(f"blocks.{number}.norm2", tokens))
            tokens = tokens + self.linear(f"blocks.{number}.mlp.fc2", F.gelu(hidden, approximate=self.gelu))
        return self.normed("norm", tokens)

    def attention(self, number: int, x: Tensor) -> Tensor:
        batch, length, dim = x.shape
        mixed = self.linear(f"blocks.{number}.attn.qkv", x)
        queries, keys, values = mixed.view(batch, length, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        found = F.scaled_dot_product_attention(queries, keys, values)  # [B, heads, L, D / heads]
        return self.linear(f"blocks.{number}.attn.proj", found.transpose(1, 2).flatten(2))

    def linear(self, name: str, x: Tensor) -> Tensor:
        return self.product(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def normed(self, name: str, x: Tensor) -> Tensor:
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return F.layer_norm(x, weight.shape, weight, bias, self.norm_eps)


def viewed(view: ImageView, x: Tensor) -> Tensor:
    """Pixels of 0 to 255, in floats, resized and scaled as image libraries do it: [B, 3, size, size]."""
    mean, deviation = RANGES[view.values] if isinstance(view.values, str) else view.values
    resized = F.interpolate(x, size=(view.size, view.size), mode="bilinear", antialias=True)
    return (resized / 255 - x.new_tensor(mean).view(3, 1, 1)) / x.new_tensor(deviation).view(3, 1, 1)


def among(logits: Tensor, classes: Sequence[int]) -> Tensor:
    """Logits with all other classes at minus infinity."""
    others = torch.ones(logits.shape[1], dtype=torch.bool)
    others[list(classes)] = False
    return logits.masked_fill(others, -torch.inf)


def checked(learner: L2P) -> ViT:
    """The learner's ViT; raises a ValueError if a learner does what Algorithm 1 does not."""
    more = {
        "train_backbone": learner.train_backbone,
        "capacity": learner.capacity,
        "vote": learner.vote,
        "slots": learner.slots,
        "diversify": learner.diversify,
    }
    for name, value in more.items():
        if value:
            raise ValueError(f"{name} = {value}: the textbook step has none, leave it out")
    if learner.key != "learned" or not learner.view.fixed or learner.view.test_crop is not None:
        raise ValueError("the textbook step has learned keys and looks at whole images: no crop, flip or test_crop")
    if not isinstance(learner.backbone, ViT) or learner.backbone.patches != 1 or learner.backbone.layer_scale:
        raise ValueError("the textbook step reads a plain ViT, without registers, distillation or layer scales")
    return learner.backbone
