"""What `from promptpool import ...` gives."""

from __future__ import annotations

import subprocess
import sys

import pytest

import promptpool


@pytest.mark.parametrize("name", promptpool.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(promptpool, name) is not None
    assert name in dir(promptpool)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        promptpool.nothing  # noqa: B018


def test_importing_the_package_imports_no_torch() -> None:
    code = "import sys, promptpool; print(promptpool.__version__, 'torch' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == [promptpool.__version__, "False"]
