"""What a checkpoint says of itself beside its tensors: safetensors metadata, or the config.json of a folder.

A folder is transformers' (`model_type`; mean, deviation and image size are in preprocessor_config.json) or timm's
(`architecture`; they are in `pretrained_cfg`). Sizes are only claims here. The tensors have the last word, and a claim
that differs from them is an error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from promptpool.backbones.layouts import DINOV2, DINOV2_WITH_REGISTERS, HUGGING_FACE, TIMM, Layout
from promptpool.backbones.sizes import NO_GATES
from promptpool.backbones.vit import GELUS
from promptpool.data.views import Range
from promptpool.errors import BadFileError

Fields = dict[str, object]

HUGGING_FACE_LAYOUTS = {
    "vit": HUGGING_FACE,
    "deit": HUGGING_FACE,
    "dinov2": DINOV2,
    "dinov2_with_registers": DINOV2_WITH_REGISTERS,
}
HUGGING_FACE_SIZES = {
    "hidden_size": "dim",
    "num_hidden_layers": "depth",
    "intermediate_size": "mlp_dim",
    "patch_size": "patch_size",
    "image_size": "image_size",
    "num_register_tokens": "registers",
}
HUGGING_FACE_GELUS = {"gelu": "exact", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh", "gelu_fast": "tanh"}

LARGEST = 4096  # pixels on the side of an image that a file may ask for: positions are resized to it
TIMM_ARCHITECTURES = ("vit_", "deit_", "deit3_", "flexivit_")
TIMM_OTHERS = ("rope", "clip", "siglip", "dinov3", "quickgelu")  # parts of names: positions or activations not ours


class Claim(NamedTuple):
    size: str
    field: str
    value: int


class Description(NamedTuple):
    """`image_size` is that of the images the model is meant for, where it may differ from that of its positions."""

    source: Path
    heads: int | None = None
    norm_eps: float = 1e-6
    claims: tuple[Claim, ...] = ()
    qkv_bias: bool = True
    values: Range | None = None
    gelu: str = "exact"
    image_size: int | None = None


def from_metadata(path: Path, metadata: dict[str, str]) -> Description:
    """The description in a safetensors header; every field may be missing."""
    fields: Fields = {**metadata}
    sizes = ("patch_size", "image_size")
    return Description(
        source=path,
        heads=_whole(path, fields, "heads") if "heads" in fields else None,
        norm_eps=_small(path, fields, "norm_eps") if "norm_eps" in fields else 1e-6,
        claims=tuple(Claim(name, name, _whole(path, fields, name)) for name in sizes if name in fields),
        values=_values(path, fields, "mean", "std"),
        gelu=_among(path, fields, "gelu", GELUS, "exact"),
    )


def from_folder(folder: Path) -> tuple[Layout, Description]:
    """The layout and description of a folder of a ViT, DeiT or DINOv2, as transformers or timm saves it."""
    path = folder / "config.json"
    if not path.is_file():
        raise BadFileError(f"{folder}: a folder without config.json; expected config.json and model.safetensors")
    config = _read_json(path)
    if "architecture" in config:
        return TIMM, _from_timm(path, config)
    kind = _among(path, config, "model_type", HUGGING_FACE_LAYOUTS)
    if config.get("num_channels", 3) != 3:
        raise BadFileError(f"{path}: num_channels = {_brief(config['num_channels'])}: only 3 is supported")
    if config.get("use_swiglu_ffn", False) is not False:
        raise BadFileError(f"{path}: use_swiglu_ffn = {_brief(config['use_swiglu_ffn'])}: {NO_GATES}")
    gelu = _among(path, config, "hidden_act", HUGGING_FACE_GELUS, "gelu")
    sizes = dict(HUGGING_FACE_SIZES)
    if kind.startswith("dinov2"):
        del sizes["intermediate_size"]  # its width comes from mlp_ratio, and transformers ignores this field
    if kind != "dinov2_with_registers":
        del sizes["num_register_tokens"]
    preprocessor = folder / "preprocessor_config.json"
    described = _read_json(preprocessor) if preprocessor.is_file() else {}
    return HUGGING_FACE_LAYOUTS[kind], Description(
        source=path,
        heads=_whole(path, config, "num_attention_heads"),
        norm_eps=_small(path, config, "layer_norm_eps"),
        claims=tuple(Claim(ours, name, _whole(path, config, name)) for name, ours in sizes.items() if name in config),
        qkv_bias=_truth(path, config, "qkv_bias"),
        values=_values(preprocessor, described, "image_mean", "image_std"),
        gelu=HUGGING_FACE_GELUS[gelu],
        image_size=_meant(preprocessor, described),
    )


def _from_timm(path: Path, config: Fields) -> Description:
    """What timm writes; which architectures have other positions or activations than ours only their names tell."""
    name = config["architecture"]
    if not isinstance(name, str) or not name.startswith(TIMM_ARCHITECTURES) or any(s in name for s in TIMM_OTHERS):
        raise BadFileError(
            f"{path}: architecture = {_brief(name)}: not a plain ViT such as timm's vit_tiny_patch16_224"
        )
    trained, arguments = _fields(path, config, "pretrained_cfg"), _fields(path, config, "model_args")
    claims = [Claim("dim", "num_features", _whole(path, config, "num_features"))] if "num_features" in config else []
    if "input_size" in trained and "img_size" not in arguments:
        claims.append(Claim("image_size", "input_size", _input_side(path, trained["input_size"])))
    return Description(
        source=path,
        heads=_whole(path, arguments, "num_heads") if "num_heads" in arguments else None,
        claims=tuple(claims),
        values=_values(path, trained, "mean", "std"),
    )


def _fields(path: Path, config: Fields, name: str) -> Fields:
    value = config.get(name, {})
    if not isinstance(value, dict):
        raise BadFileError(f"{path}: {name} = {_brief(value)}: must be an object with fields")
    return value


def _input_side(path: Path, value: object) -> int:
    """The side of a square image of three channels, which timm writes as [3, 224, 224]."""
    side = value[1] if isinstance(value, list) and len(value) == 3 else None
    if type(side) is not int or side < 1 or value != [3, side, side]:
        raise BadFileError(f"{path}: input_size = {_brief(value)}: must be [3, side, side]")
    return side


def _meant(path: Path, fields: Fields) -> int | None:
    """The side of the square images that a preprocessor makes: it crops them or resizes to equal height and width."""
    for made, name in (("do_center_crop", "crop_size"), ("do_resize", "size")):
        value = fields.get(name) if fields.get(made) is not False else None
        if isinstance(value, dict):
            value = value.get("height") if value.get("height") == value.get("width") else None
        if type(value) is int:
            if not 0 < value <= LARGEST:
                raise BadFileError(f"{path}: {name} = {value}: must be from 1 to {LARGEST}")
            return value
    return None


def _read_json(path: Path) -> Fields:
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadFileError(f"{path}: not readable as JSON ({error})") from error
    if not isinstance(fields, dict):
        raise BadFileError(f"{path}: holds a {type(fields).__name__}, expected an object with fields")
    return fields


def _whole(path: Path, fields: Fields, name: str) -> int:
    """A size: a whole number from 1, which metadata writes as text."""
    value = fields.get(name)
    try:
        number = int(value) if isinstance(value, str) else value
    except ValueError:
        number = None
    if type(number) is not int or number < 1:  # type(): True is an int, and not a size
        raise BadFileError(f"{path}: {name} = {_brief(value)}: must be a whole number from 1")
    return number


def _small(path: Path, fields: Fields, name: str) -> float:
    number = _real(fields.get(name))
    if not 0 < number < 1:
        raise BadFileError(f"{path}: {name} = {_brief(fields.get(name))}: must be a number between 0 and 1")
    return number


def _among(path: Path, fields: Fields, name: str, allowed: Collection[str], default: str | None = None) -> str:
    value = fields.get(name, default)
    if not isinstance(value, str) or value not in allowed:
        raise BadFileError(f"{path}: {name} = {_brief(value)}: must be one of {', '.join(allowed)}")
    return value


def _truth(path: Path, fields: Fields, name: str) -> bool:
    value = fields.get(name, True)
    if not isinstance(value, bool):
        raise BadFileError(f"{path}: {name} = {_brief(value)}: must be true or false")
    return value


def _values(path: Path, fields: Fields, mean: str, deviation: str) -> Range | None:
    """Mean and deviation as lists, or as metadata writes them ("0.5,0.5,0.5"); None unless both are there."""
    if fields.get(mean) is None or fields.get(deviation) is None:
        return None
    return _triple(path, fields, mean, -math.inf), _triple(path, fields, deviation, 0.0)


def _triple(path: Path, fields: Fields, name: str, above: float) -> tuple[float, ...]:
    value = fields[name]
    parts = value.split(",") if isinstance(value, str) else value
    numbers = tuple(_real(part) for part in parts) if isinstance(parts, list) else ()
    if len(numbers) != 3 or not all(math.isfinite(number) and number > above for number in numbers):
        least = "" if above == -math.inf else f" above {above:g}"
        raise BadFileError(f"{path}: {name} = {_brief(value)}: must be three numbers{least}")
    return numbers


def _real(value: object) -> float:
    """The number that a value is or spells, or NaN, which passes no comparison."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
