"""Requests that schemathesis makes up from the server's own description: none is a mistake of the server.

Both kinds are tried, those that fit the description and those that do not, and every answer must be one that the
description has. Every other picture is one, so that there is something to learn. `make fuzz-test` runs this.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from promptpool.serve.app import guarded
from promptpool.serve.engine import LocalEngine
from served import picture, text, write_classifier

CASES = int(os.environ.get("PROMPTPOOL_FUZZ_CASES", "60"))  # of each route and kind
ROUTES = 23
MISSING = 501  # an optional package is not installed
pytestmark = [
    pytest.mark.fuzz,
    pytest.mark.filterwarnings("ignore"),  # of schemathesis itself
]


def test_no_request_is_a_mistake_of_the_server(tmp_path: Path) -> None:
    if not os.environ.get("PROMPTPOOL_REQUIRE_FUZZ"):
        pytest.importorskip("schemathesis", reason="no schemathesis; make fuzz-test installs it")
    import schemathesis

    engine = LocalEngine(write_classifier(tmp_path / "shop"))
    try:
        schema = schemathesis.openapi.from_asgi("/openapi.json", guarded(engine), headers={"Host": "localhost"})
        operations = [found.ok() for found in schema.get_all_operations()]
        operations.sort(
            key=lambda operation: operation.method.upper() == "DELETE"
        )  # so that there is something to learn
        counts = {
            f"{operation.label}, {mode.value}": tried(operation, mode)
            for operation in operations
            for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
        }
        version = engine.present.number
    finally:
        engine.close()
    print(f"{sum(counts.values())} requests to {len(operations)} routes, version {version} at the end")  # noqa: T201
    assert len(operations) == ROUTES
    assert all(counts[f"{operation.label}, positive"] for operation in operations)


def tried(operation: Any, mode: Any) -> int:
    """How many requests were made to a route; fails at an answer that its description does not have."""
    import hypothesis
    from schemathesis import checks

    names = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance")
    wanted = [getattr(checks, name) for name in names]
    count = 0

    def check(case: Any) -> None:
        nonlocal count
        count += 1
        if count % 2:
            put_pictures(case.body, count)
        response = case.call(headers={"X-Promptpool": "1", "Host": "localhost"}, timeout=300)
        if response.status_code != MISSING:
            case.validate_response(response, checks=wanted)

    values = {"max_examples": CASES, "deadline": None, "derandomize": True, "database": None}
    settings: Any = hypothesis.settings(**values, suppress_health_check=list(hypothesis.HealthCheck))
    cases: Any = hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    try:
        settings(cases(check))()
    except hypothesis.errors.Unsatisfiable:
        return 0  # a route without values has no wrong ones
    return count


def put_pictures(body: Any, number: int) -> None:
    """Pictures in the place of what was made up, where that is text."""
    for name in ("images", "pictures") if isinstance(body, dict) else ():
        for each in body[name] if isinstance(body.get(name), list) else ():
            if isinstance(each, dict) and isinstance(each.get("data"), str):
                each["data"] = text(picture("blue", number))
