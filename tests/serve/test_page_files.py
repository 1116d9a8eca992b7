"""The files of the page fit each other, and ask for nothing from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import promptpool.serve

PAGE = Path(promptpool.serve.__file__).parent / "page"
SCRIPTS = sorted(PAGE.glob("*.js"))
MARKUP = (PAGE / "index.html").read_text(encoding="utf-8")


def test_every_script_and_name_that_is_imported_exists() -> None:
    assert len(SCRIPTS) > 10
    for script in SCRIPTS:
        text = script.read_text(encoding="utf-8")
        found = re.findall(r'import \{([^}]+)\} from "\./([a-z]+\.js)"', text)
        assert len(found) == text.count("import {")
        for names, other in found:
            exported = (PAGE / other).read_text(encoding="utf-8")
            for name in filter(None, (each.strip() for each in names.split(","))):
                assert re.search(rf"export (async )?(const|function\*?|class) {name}\b", exported), f"{script}: {name}"


def test_every_element_that_is_looked_for_is_made() -> None:
    every = MARKUP + "".join(script.read_text(encoding="utf-8") for script in SCRIPTS)
    for script in SCRIPTS:
        for wanted in re.findall(r'\bby\("([^"]+)"\)', script.read_text(encoding="utf-8")):
            assert re.search(rf'\bid(="|: "){wanted}"', every), f"{script.name} looks for {wanted}"


def test_nothing_comes_from_another_host_or_stands_in_the_page() -> None:
    for path in (*SCRIPTS, PAGE / "index.html", PAGE / "page.css"):
        assert re.findall(r"https?://|//[a-z]+\.[a-z]", path.read_text(encoding="utf-8")) == [], path
    assert re.findall(r"<style|<script(?![^>]* src=)| style=| on[a-z]+=", MARKUP) == []
    for name in re.findall(r'(?:src|href)="static/([^"]+)"', MARKUP):
        assert (PAGE / name).is_file()
