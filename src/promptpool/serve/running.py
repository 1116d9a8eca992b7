"""A server as a process: its socket, its signals, and the file that tells others where it is."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from promptpool.errors import BadFileError
from promptpool.serve.address import leave_note, take_note
from promptpool.serve.answerer import LocalAnswerer, MakeAnswerer
from promptpool.serve.app import guarded
from promptpool.serve.engine import LocalEngine
from promptpool.serve.limits import Limits
from promptpool.serve.safety import Access, host_names
from promptpool.serve.several import Several, names_of

TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{16,512}")
GRACE = 10  # seconds that requests under way have when the server ends


class Place(NamedTuple):
    """Where the server listens, and who may ask."""

    host: str = "127.0.0.1"
    port: int = 8000
    names: tuple[str, ...] = ()  # under which a proxy passes requests on
    token_file: Path | None = None


def serve(
    folders: Sequence[Path],
    place: Place,
    *,
    backbone: str | None = None,
    threads: int | None = None,
    make_answerer: MakeAnswerer = LocalAnswerer,
    begun: Callable[[str, LocalEngine, str | None], None],
) -> None:
    """Serve until SIGTERM or Ctrl-C; `begun` hears of each classifier its address, its engine and the token.

    Several classifiers share one address, each below its name.
    """
    token = checked_access(place)
    names = named(folders)
    with ExitStack() as held:
        engines: dict[str, LocalEngine] = {}
        for name, folder in names.items():
            engines[name] = LocalEngine(folder, backbone=backbone, make_answerer=make_answerer)
            held.callback(engines[name].close)
        listener = held.enter_context(_listening(place))
        access = Access(token, host_names((place.host, *place.names)), _is_everywhere(place.host))
        app = (
            Several(engines, access, threads=threads)
            if len(names) > 1
            else guarded(engines[""], access, threads=threads)
        )
        for name, engine in engines.items():
            address = f"{_address(place, listener)}/{name}".rstrip("/")
            leave_note(engine.folder, address, place.token_file)
            held.callback(take_note, engine.folder)
            begun(address, engine, token)
        _run(uvicorn.Server(_config(app, Limits())), listener)


def named(folders: Sequence[Path]) -> dict[str, Path]:
    """Classifiers by their names in addresses; one alone needs none."""
    return {"": folders[0]} if len(folders) == 1 else names_of(folders)


def checked_access(place: Place) -> str | None:
    """The token, if there is one; an address that others reach must have one."""
    if place.token_file is not None:
        try:
            token = place.token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise BadFileError(f"--token-file {place.token_file}: {error}") from error
        if not TOKEN.fullmatch(token):
            raise BadFileError(
                f"--token-file {place.token_file}: a token is one line of 16 to 512 letters, digits and ._~+/=-"
            )
        return token
    if not _is_loopback(place.host):
        raise BadFileError(
            f"--host {place.host}: others reach this address, so a token is needed: openssl rand -hex 32 > token, then "
            "--token-file token. Tokens and pictures would cross the network in the open: better listen on 127.0.0.1 "
            "and put nginx or Caddy with TLS before it, with --host-name (docs/serving.md)"
        )
    return None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_everywhere(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _listening(place: Place) -> socket.socket:
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    try:
        return socket.create_server((place.host, place.port), family=family)
    except OSError as error:
        raise BadFileError(
            f"--host {place.host} --port {place.port}: cannot listen there ({_reason(error)}); "
            "--port 0 takes a free one"
        ) from error


def _reason(error: OSError) -> str:
    """Without what Python adds to it, and also where no number says what it is: a name that leads nowhere."""
    return os.strerror(error.errno) if error.errno and not isinstance(error, socket.gaierror) else str(error)


def _address(place: Place, listener: socket.socket) -> str:
    """Where a browser of this machine finds it."""
    host = "127.0.0.1" if place.host == "0.0.0.0" else "::1" if place.host == "::" else place.host  # noqa: S104
    return f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"


def _config(app: object, limits: Limits) -> uvicorn.Config:
    class Patient(PatientProtocol):
        head = limits.head

    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=Patient,
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_level="warning",
        access_log=False,  # an address may hold a token
        server_header=False,
        timeout_graceful_shutdown=GRACE,
    )


def _run(server: uvicorn.Server, listener: socket.socket) -> None:
    """Serve until a signal; uvicorn raises it again at the end, and by then all that it asked for has been done."""

    def end(*_: object) -> None:
        server.should_exit = True

    before = {each: signal.signal(each, end) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        server.run(sockets=[listener])
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


class PatientProtocol(H11Protocol):
    """HTTP for clients that send the head of a request within some seconds; uvicorn itself waits for ever."""

    head = 10.0
    timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop()

    def _watch(self) -> None:
        """Have the timer run while no request is being answered."""
        idle = self.cycle is None or self.cycle.response_complete
        if not idle:
            self._stop()
        elif self.timer is None:
            self.timer = self.loop.call_later(self.head, self._give_up)

    def _stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _give_up(self) -> None:
        self.timer = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
