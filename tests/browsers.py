"""The browser that pages are opened in: Chromium, as the system has it."""

from __future__ import annotations

import os
import shutil

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
REQUIRED = "PROMPTPOOL_REQUIRE_BROWSER"
FLAGS = (
    "--no-sandbox",  # containers often cannot have one; the page is our own
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
)


def find_chromium() -> str:
    """Its path; without one the test is skipped, or fails where a browser is required."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        missing(f"no browser: none of {', '.join(NAMES)} is installed; make browser-test installs it where it can")
    return str(found)


def missing(what: str) -> None:
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(what)
    pytest.skip(what)
