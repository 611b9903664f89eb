"""schemathesis generates valid and invalid requests from /openapi.json; none may cause a 5xx response."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from server.serving import ROWS, Server, base_model, server, task_model


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("served")
    encoder = base_model(root / "mlm")
    decoder = base_model(root / "gpt", "gpt2-mini", ("lm",))
    for name in ROWS:
        task_model(root / name, decoder if name == "generate" else encoder, name)
    with server(*(str(root / name) for name in ("mlm", "gpt", *ROWS))) as instance:
        yield instance


def statuses(running: Server) -> dict[str, float]:
    """Return the number of responses by status, from /metrics."""
    counts: dict[str, float] = {}
    for line in httpx.get(f"{running.url}/metrics").text.splitlines():
        if line.startswith("unmask_requests_total{"):
            status = line.partition('status="')[2].partition('"')[0]
            counts[status] = counts.get(status, 0) + float(line.rpartition(" ")[2])
    return counts


def attack(running: Server, examples: int, folder: Path) -> float:
    """Return the number of requests."""
    before = sum(statuses(running).values())
    result = subprocess.run(
        [
            str(Path(sys.executable).parent / "schemathesis"),
            *("run", f"{running.url}/openapi.json", "--max-examples", str(examples), "--seed", "7", "--no-color"),
            *("--phases", "coverage,fuzzing", "--checks", "not_a_server_error,content_type_conformance"),
            *("--generation-database", "none", "--suppress-health-check", "all", "--continue-on-failure"),
        ],
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    after = statuses(running)
    assert not [status for status in after if status.startswith("5")], after
    assert {"200", "422"} <= set(after), after  # it generated both valid and invalid requests
    assert not running.complained, running.complained
    return sum(after.values()) - before


def test_500_requests_cause_no_server_error(running: Server, tmp_path: Path) -> None:
    assert attack(running, 5, tmp_path) >= 500


@pytest.mark.slow
def test_5000_requests_cause_no_server_error(running: Server, tmp_path: Path) -> None:
    assert attack(running, 250, tmp_path) >= 5000


def test_openapi_schema_is_complete(running: Server) -> None:
    spec = httpx.get(f"{running.url}/openapi.json").json()
    for path, verbs in spec["paths"].items():
        for verb, operation in verbs.items():
            assert operation["summary"] and operation["operationId"] and operation["tags"], (path, verb)
            assert "HTTPValidationError" not in json.dumps(operation), path
    assert len({a["operationId"] for verbs in spec["paths"].values() for a in verbs.values()}) == sum(
        len(verbs) for verbs in spec["paths"].values()
    )
