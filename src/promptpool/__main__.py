"""`python -m promptpool` is the command `promptpool`."""

from promptpool.cli import app

app(prog_name="promptpool")
