"""The command `promptpool`: verbs only, one file each."""

from promptpool.cores import let_waiting_threads_sleep

let_waiting_threads_sleep()  # before torch is imported, which reads it then

from promptpool.cli.main import app  # noqa: E402

__all__ = ["app"]
