"""The verb `export`: a classifier for those who do not have promptpool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal

from promptpool.classifier import files
from promptpool.cli.classifier import Name
from promptpool.cli.errors import user_errors
from promptpool.experiments.config import ConfigError


def export(
    name: Name,
    onnx: Annotated[Path, typer.Option(help="The ONNX file to write.")],
    backbone: Annotated[str | None, typer.Option(help="Where the backbone lies now, if that changed.")] = None,
) -> None:
    """Write a classifier as one ONNX file, which needs onnxruntime alone; checked against the classifier first."""
    with user_errors():
        try:
            classifier = files.load(name, backbone=backbone)
            agreement = classifier.export_onnx(onnx)
        except (RuntimeError, ValueError) as error:
            raise ConfigError(str(error)) from error
        except KeyboardInterrupt:
            typer.echo(f"promptpool: stopped; {onnx} is as it was", err=True)
            raise typer.Exit(130) from None
    size = classifier.backbone.image_size
    typer.echo(f"{onnx}: {len(classifier.labels)} classes, {decimal(onnx.stat().st_size)}")
    typer.echo(f"it reads pixels, uint8 [n, 3, {size}, {size}]; labels and all else are in its metadata")
    typer.echo(
        f"on {agreement.pictures} pictures it answers as {name} does; "
        f"scores differ by at most {agreement.difference:.1g} of their spread"
    )
