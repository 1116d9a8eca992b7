"""The page in a real browser: Chromium, headless, with every host name unresolvable."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from browsers import FLAGS, find_chromium
from promptpool.report.report import write_report
from report_runs import several

LOOK = """<!doctype html>
<iframe src="report.html" style="width: {width}px; height: 800px; border: 0"></iframe>
<script>
onload = () => {{
  const page = document.querySelector("iframe").contentDocument
  const images = [...page.images]
  page.querySelectorAll("details").forEach(each => each.open = true)
  document.body.textContent = "<<" + btoa(JSON.stringify({{
    width: page.documentElement.scrollWidth,
    method: page.querySelector("tbody th").clientWidth,
    images: images.length,
    broken: images.filter(each => !each.naturalWidth).length,
    dark: images.filter(each => each.currentSrc == each.parentElement.querySelector("source").srcset).length,
    ground: page.defaultView.getComputedStyle(page.body).backgroundColor,
    scripts: page.scripts.length,
  }})) + ">>"
}}
</script>"""


class Visit(NamedTuple):
    """What a page did in the browser."""

    dom: str
    console: list[str]
    requests: list[str]


@pytest.fixture(scope="module")
def chromium() -> str:
    return find_chromium()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    runs = [run for run in several(folder / "runs") if run.name not in ("l2p-1", "vote")]  # pictures of one pool do
    return write_report(runs, folder / "out")


def visit(chromium: str, page: Path, folder: Path, *extra: str) -> Visit:
    """Open a page, wait until it rests, and read the browser's log of its console and of its network."""
    log = folder / "net.json"
    command = [
        chromium,
        "--headless",
        *FLAGS,
        f"--user-data-dir={folder / 'profile'}",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        f"--log-net-log={log}",
        "--enable-logging=stderr",
        "--v=0",
        "--virtual-time-budget=10000",
        "--dump-dom",
        *extra,
        page.resolve().as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return Visit(done.stdout, console, requested(json.loads(log.read_text(encoding="utf-8"))))


def requested(log: dict[str, Any]) -> list[str]:
    """Addresses on any host that a page asked for, in Chromium's log of its network.

    The browser asks for things of its own (the time, updates); those have no origin as their initiator.
    """
    events = [event.get("params") or {} for event in log["events"]]
    urls = [event["url"] for event in events if event.get("initiator", "not an origin") != "not an origin"]
    return [url for url in urls if re.match(r"(https?|wss?|ftp):", url)]


def look(chromium: str, report: Path, folder: Path, width: int, *extra: str) -> dict[str, Any]:
    """What the page looks like inside a frame of this width, everything unfolded."""
    outside = report.with_name("look.html")
    outside.write_text(LOOK.format(width=width), encoding="utf-8")
    visited = visit(chromium, outside, folder, "--allow-file-access-from-files", "--window-size=1500,900", *extra)
    assert visited.console == []
    encoded = re.search("&lt;&lt;(.*)&gt;&gt;", visited.dom)
    assert encoded, visited.dom
    found: dict[str, Any] = json.loads(base64.b64decode(encoded[1]))
    return found


@pytest.mark.browser
def test_no_error_and_no_request(chromium: str, report: Path, tmp_path: Path) -> None:
    visited = visit(chromium, report, tmp_path)
    assert visited.console == []
    assert visited.requests == []
    assert "promptpool report</h1>" in visited.dom


@pytest.mark.browser
def test_errors_and_requests_would_be_seen(chromium: str, tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text("<img src='https://example.com/x.png'><script>console.error('oh'); nothing()</script>")
    visited = visit(chromium, page, tmp_path)
    assert "https://example.com/x.png" in visited.requests
    assert any("oh" in line for line in visited.console)
    assert any("nothing is not defined" in line for line in visited.console)


@pytest.mark.browser
@pytest.mark.parametrize("width", [320, 390, 1280])
def test_it_fits_the_screen(chromium: str, report: Path, tmp_path: Path, width: int) -> None:
    found = look(chromium, report, tmp_path, width)
    assert found["width"] <= width
    assert 90 <= found["method"] <= width / 2  # names are neither cut to letters nor in the way of the numbers
    assert found["images"] > 10
    assert found["broken"] == found["scripts"] == 0


@pytest.mark.browser
def test_the_page_follows_the_theme_of_the_system(chromium: str, report: Path, tmp_path: Path) -> None:
    light = look(chromium, report, tmp_path / "light", 800, "--blink-settings=preferredColorScheme=1")
    dark = look(chromium, report, tmp_path / "dark", 800, "--blink-settings=preferredColorScheme=0")
    assert (light["dark"], dark["dark"]) == (0, dark["images"])
    assert (light["ground"], dark["ground"]) == ("rgb(246, 248, 250)", "rgb(13, 17, 23)")
