"""Weights by the name they have on the Hugging Face hub; needs the extra `hub`."""

from __future__ import annotations

import os
import re
import socket
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from promptpool.errors import BadFileError

FILES = ("config.json", "model.safetensors")


def is_hub_name(name: str) -> bool:
    """True if `name` reads `owner/name`."""
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", name, re.ASCII) is not None


def fetch(name: str, *, endpoint: str | None = None, cache: Path | None = None) -> Path:
    """The folder with a hub model's config.json and model.safetensors, downloaded unless already there.

    `endpoint` and `cache` default to those of huggingface_hub (HF_ENDPOINT, HF_HUB_CACHE).
    """
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import (  # type: ignore[attr-defined]  # HTTPError: of whichever client it uses
            EntryNotFoundError,
            HFValidationError,
            HTTPError,
            LocalEntryNotFoundError,
            RepositoryNotFoundError,
        )
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{name}: hub names need one more package: pip install 'promptpool[hub]'") from error
    known = _known(endpoint or os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    get = partial(hf_hub_download, name, endpoint=endpoint, cache_dir=cache, local_files_only=not known)
    try:
        paths = [Path(get(filename=file)) for file in FILES]
        with suppress(EntryNotFoundError):  # says the mean and deviation, where there is one
            get(filename="preprocessor_config.json")
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise BadFileError(f"{name}: neither a path here nor a model that the hub lets you read") from error
    except LocalEntryNotFoundError as error:
        raise BadFileError(f"{name}: the hub cannot be reached; {_by_hand(name)}") from error
    except EntryNotFoundError as error:
        raise BadFileError(f"{name}: this hub model does not have both {' and '.join(FILES)}") from error
    except (HTTPError, OSError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BadFileError(f"{name}: the download failed ({reason}); {_by_hand(name)}") from error
    return paths[-1].parent


def _known(endpoint: str) -> bool:
    """True if the network knows the hub, so that nobody waits for retries without one; a proxy is trusted to."""
    if getproxies():
        return True
    try:
        socket.getaddrinfo(urlsplit(endpoint).hostname, None)
    except OSError:
        return False
    return True


def _by_hand(name: str) -> str:
    files = " and ".join(FILES)
    return f"download {files} from https://huggingface.co/{name} into one folder and give that folder's path instead"
