"""A real server of a small classifier, on a thread of the test's own process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from promptpool.serve.app import guarded
from promptpool.serve.engine import LocalEngine


@contextmanager
def serving(folder: Path, port: int = 0) -> Iterator[str]:
    """The address of a server of the classifier in the folder."""
    engine = LocalEngine(folder)
    try:
        with socket.create_server(("127.0.0.1", port)) as listener:
            config = uvicorn.Config(guarded(engine), ws="none", lifespan="off", loop="asyncio", log_level="warning")
            server = uvicorn.Server(config)
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
            thread.start()
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
            finally:
                server.should_exit = True
                thread.join()
    finally:
        engine.close()
