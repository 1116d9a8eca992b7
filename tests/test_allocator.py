"""Memory that is freed stays with the process, where the C library can and nobody has said otherwise."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from promptpool.allocator import OWN, keep_freed_memory

TAKEN = [(-3, 2**25), (-1, 2**30)]


@pytest.mark.parametrize(
    ("library", "takes", "variable", "expected"),
    [
        ("glibc", True, None, TAKEN),
        ("glibc", False, None, TAKEN[:1]),
        ("", True, None, []),
        *(("glibc", True, variable, []) for variable in OWN),
    ],
)
def test_memory_is_kept_where_the_c_library_can(
    library: str,
    takes: bool,
    variable: str | None,
    expected: list[tuple[int, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[tuple[int, int]] = []

    def mallopt(name: int, value: int) -> bool:
        found.append((name, value))
        return takes

    for name in OWN:
        monkeypatch.delenv(name, raising=False)
    if variable is not None:
        monkeypatch.setenv(variable, "1")
    monkeypatch.setattr("platform.libc_ver", lambda: (library, ""))
    monkeypatch.setattr("ctypes.CDLL", lambda _: SimpleNamespace(mallopt=mallopt))
    keep_freed_memory.__wrapped__()
    assert found == expected
