"""Errors as a user of the command line sees them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from promptpool.errors import BadFileError
from promptpool.experiments.config import ConfigError


@contextmanager
def user_errors() -> Iterator[None]:
    """What a user can put right is said in one line, with exit code 2; Ctrl-C ends with 130."""
    try:
        yield
    except (ConfigError, BadFileError, ModuleNotFoundError, OSError) as error:
        typer.echo(f"promptpool: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(2) from error
    except KeyboardInterrupt:
        typer.echo("promptpool: stopped; the same command goes on from here", err=True)
        raise typer.Exit(130) from None


@contextmanager
def classifier_errors() -> Iterator[None]:
    """The same of a classifier's verbs: what is wrong with a value is for the user too, and nothing goes on."""
    with user_errors():
        try:
            yield
        except ValueError as error:
            raise ConfigError(str(error)) from error
        except KeyboardInterrupt:
            typer.echo("promptpool: stopped; the classifier is as it was", err=True)
            raise typer.Exit(130) from None
        except BrokenPipeError:  # whoever reads has read enough
            raise typer.Exit(0) from None
