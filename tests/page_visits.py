"""Visits to the served page in a real browser, driven by Playwright, and what went wrong during one.

Playwright waits until an element can be pressed before it presses it, which a client of our own over a websocket would
have to learn; it is not among the requirements, `make browser-test` installs it. Where `PROMPTPOOL_SCREENSHOTS` names a
folder, every state that a test looks at is drawn there, in both themes, wide and narrow.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from browsers import FLAGS, find_chromium, missing

WIDE, NARROW = (1280, 900), (360, 740)
CAMERA = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
NO_OTHER_HOST = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
CONTROLS = {"button", "link", "textbox", "searchbox", "combobox", "listbox", "option", "checkbox", "progressbar"}
CONTROLS |= {"application", "region", "dialog", "Video", "navigation", "form", "image"}

CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")


@contextmanager
def opened_browser() -> Iterator[Any]:
    """A browser that resolves no name, with a camera that shows a test picture."""
    path = find_chromium()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("no Playwright; make browser-test installs it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*FLAGS, *CAMERA, NO_OTHER_HOST])
        yield browser
        browser.close()


class Visit:
    """A page in the browser, and all that it asked for and complained about."""

    def __init__(self, page: Any, address: str) -> None:
        self.page, self.address = page, address
        self.complaints: list[str] = []
        self.expected: tuple[str, ...] = ()  # parts of complaints that a test provokes
        self.requests: list[Any] = []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request))
        page.on("filechooser", lambda _: None)  # so that the browser hands them over from the start, not after a moment

    def open(self, view: str = "") -> Visit:
        self.page.goto(self.address + view)
        self.page.locator("#facts", has_text="version").or_(self.page.get_by_text("nothing yet").first).first.wait_for()
        return self

    def go(self, view: str) -> None:
        self.page.get_by_role("link", name=view).first.click()

    def drop(self, files: Sequence[Path], onto: Any = None) -> None:
        """Drop files or folders as a file manager does, on an element or in the middle."""
        self.drag(files, onto, "dragEnter", "dragOver", "drop")

    def drag(self, files: Sequence[Path], onto: Any, *events: str) -> None:
        size = self.page.viewport_size
        box = {"x": 0, "y": 0, **size} if onto is None else onto.bounding_box()
        middle = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
        data = {"items": [], "files": [str(path.resolve()) for path in files], "dragOperationsMask": 1}
        session = self.page.context.new_cdp_session(self.page)
        for event in events:
            session.send("Input.dispatchDragEvent", {"type": event, **middle, "data": data})
        session.detach()

    def answered(self, count: int) -> None:
        """Wait until this many pictures have an answer, or a reason why not."""
        expect(self.page.locator(".card")).to_have_count(count)
        expect(self.page.locator(".card[data-state=waiting]")).to_have_count(0)

    def card(self, name: str) -> Any:
        return self.page.locator(".card", has_text=name)

    def look(self, name: str) -> None:
        """The present state fits every screen, its texts can be read in both themes, its controls have names."""
        nameless = self.nameless()
        assert nameless == [], f"{name}: {nameless}"
        folder = os.environ.get("PROMPTPOOL_SCREENSHOTS")
        for theme in ("dark", "light"):
            self.page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            faint = self.page.evaluate(CONTRAST)
            assert faint == [], f"{name}, {theme}: {faint}"
            for width, height in (NARROW, WIDE):
                self.page.set_viewport_size({"width": width, "height": height})
                needed = self.page.evaluate("document.documentElement.scrollWidth")
                assert needed <= width, f"{name} needs {needed} pixels of {width}"
                if folder:
                    Path(folder).mkdir(parents=True, exist_ok=True)
                    self.page.screenshot(path=Path(folder) / f"{name}-{theme}-{width}.png", full_page=True)

    def nameless(self) -> list[str]:
        """Controls that have no accessible name, as the browser tells assistive technology."""
        session = self.page.context.new_cdp_session(self.page)
        nodes = session.send("Accessibility.getFullAXTree")["nodes"]
        session.detach()
        seen = [node for node in nodes if not node.get("ignored") and node["role"]["value"] in CONTROLS]
        assert len(seen) > 2, "the tree of the page is empty"
        return [str(node["role"]["value"]) for node in seen if not node.get("name", {}).get("value", "").strip()]

    def other_hosts(self) -> list[str]:
        own = urlsplit(self.address).netloc
        urls = [urlsplit(request.url) for request in self.requests]
        return [url.geturl() for url in urls if url.scheme not in ("blob", "data") and url.netloc != own]


def expect(locator: Any) -> Any:
    """Playwright's assertions, which wait; the machine of a test may be slow."""
    from playwright.sync_api import expect as expect_

    expect_.set_options(timeout=20_000)
    return expect_(locator)


@contextmanager
def visiting(browser: Any, address: str, size: tuple[int, int] = WIDE, scale: float = 1) -> Iterator[Visit]:
    """A visit that must end without a complaint and without a request to another host."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, device_scale_factor=scale)
    visit = Visit(context.new_page(), address)
    yield visit
    context.close()
    assert [each for each in visit.complaints if not any(part in each for part in visit.expected)] == []
    assert visit.other_hosts() == []
