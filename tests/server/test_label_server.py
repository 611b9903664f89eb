"""`unmask label` as a process: requests of the page, of other sites and of several tabs; a kill after a response; Ctrl-C."""

import csv
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from server.serving import Server, server

from unmask import api

COUNT = 40


def write_rows(path: Path, label: str = "") -> Path:
    rows = [(f'text "{n}",\nmore', label, "a" if n % 2 else "b", n / COUNT) for n in range(COUNT)]
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label", "suggested", "probability"), *rows])
    return path


def labels(path: Path) -> list[str]:
    with open(path, newline="", encoding="utf-8") as file:
        return [row["label"] for row in csv.DictReader(file)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "to label.csv")


@pytest.fixture
def running(file: Path) -> Iterator[Server]:
    with server(str(file), "--no-browser", verb="label") as process:
        yield process


def save(running: Server, index: int, label: str, **more: Any) -> httpx.Response:
    id = httpx.get(f"{running.url}/studio/label/session").json()["id"]
    body = {"id": id, "index": index, "label": label} | more.pop("json", {})
    return httpx.post(f"{running.url}/studio/label/save", json=body, **more)


def test_label_is_in_the_file_when_the_server_answers(running: Server, file: Path) -> None:
    session = httpx.get(f"{running.url}/studio/label/session").json()
    assert session["labels"] == ["b", "a"] and session["next"] == f"unmask finetune MODEL --train '{file}'"
    first = httpx.get(f"{running.url}/studio/label/text").json()
    assert first == {
        "index": 0, "total": COUNT, "labeled": 0, "text": 'text "0",\nmore', "label": "", "suggested": "b", "probability": 0.0,
    }  # fmt: skip
    answer = save(running, 0, "a").json()
    assert labels(file)[:2] == ["a", ""] and (answer["index"], answer["labeled"]) == (1, 1)
    assert save(running, 0, "").json()["label"] == "" and labels(file)[0] == ""
    assert httpx.get(f"{running.url}/studio/label/text?index=999").json()["text"] is None
    assert httpx.get(f"{running.url}/").text.startswith("<!doctype html>")


def test_other_sites_cannot_label(running: Server, file: Path) -> None:
    before = file.read_bytes()
    for headers, status in (
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": f"http://127.0.0.1:{running.port + 1}"}, 403),
        ({"Host": "evil.example"}, 421),
    ):
        assert save(running, 0, "a", headers=headers).status_code == status, headers
    assert httpx.get(f"{running.url}/studio/label/session", headers={"Host": "evil.example"}).status_code == 421
    assert file.read_bytes() == before
    assert save(running, 0, "a", headers={"Origin": running.url}).status_code == 200


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"label": "new"}, 422),
        ({"label": None}, 422),
        ({"index": -1}, 422),
        ({"index": COUNT}, 409),
        ({"id": "of another file"}, 409),
        ({"extra": 1}, 422),
    ],
)
def test_invalid_labels_are_rejected(running: Server, file: Path, change: dict[str, Any], status: int) -> None:
    before = file.read_bytes()
    answer = save(running, 0, "a", json=change)
    assert answer.status_code == status and answer.json()["error"]["message"]
    assert file.read_bytes() == before


def test_change_of_another_program_is_answered_with_a_command(running: Server, file: Path) -> None:
    write_rows(file, "b")
    answer = save(running, 0, "a")
    assert answer.status_code == 409 and f"unmask label '{file}'" in answer.json()["error"]["hint"]
    assert set(labels(file)) == {"b"}


def test_labels_of_several_tabs_are_all_saved(running: Server, file: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda n: save(running, n, "ab"[n % 2]).status_code, range(COUNT)))
    assert set(answers) == {200} and labels(file) == ["ab"[n % 2] for n in range(COUNT)]


def test_kill_loses_no_label_that_was_answered(file: Path) -> None:
    answered: list[int] = []
    with server(str(file), "--no-browser", verb="label") as process:

        def label_all() -> None:
            for n in range(COUNT):
                try:
                    assert save(process, n, "a").status_code == 200
                except httpx.HTTPError:
                    return
                answered.append(n)

        thread = threading.Thread(target=label_all)
        thread.start()
        while len(answered) < 5 and thread.is_alive():
            thread.join(0.001)
        process.process.send_signal(signal.SIGKILL)
        thread.join()
    saved = labels(file)  # the file is complete
    assert len(saved) == COUNT and saved[: len(answered)] == ["a"] * len(answered)
    assert saved.count("a") <= len(answered) + 1  # and the label in flight
    with server(str(file), "--no-browser", verb="label") as again:
        assert httpx.get(f"{again.url}/studio/label/text").json()["index"] == saved.count("a")
        assert not list(file.parent.glob("*.partial"))


def test_stop_prints_progress_and_the_next_command(tmp_path: Path, file: Path) -> None:
    with server(str(file), "--then", "unmask learn x", "--no-browser", verb="label") as running:
        save(running, 0, "a")
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(40) == 0
    said = "".join(running.complained)
    assert f"1 of {COUNT} texts are labeled in {file}\n" in said
    assert f"to continue: unmask label '{file}' --then 'unmask learn x'" in said
    done = write_rows(tmp_path / "done.csv", "a")
    with server(str(done), "--no-browser", verb="label") as running:
        assert httpx.get(f"{running.url}/studio/label/text").json()["text"] is None
        assert running.stop() == 0
    assert f"next: unmask finetune MODEL --train {done}" in "".join(running.complained)


def test_text_file_names_the_file_of_its_labels(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("one\ntwo\n", "utf-8")
    with server(str(path), "--labels", "a,b", "--no-browser", verb="label") as running:
        save(running, 1, "b")
        assert f"labels are saved in {path}.csv" in "".join(running.said)
    assert labels(Path(f"{path}.csv")) == ["", "b"]


def test_labeled_file_can_be_trained_on(file: Path) -> None:
    with server(str(file), "--no-browser", verb="label") as running:
        for n in range(COUNT):
            save(running, n, "ab"[n % 2])
    check = api.doctor([str(file)], task="classify")
    assert check["errors"] == 0 and check["records"]["train"] == COUNT, check


def test_mistakes_are_printed_without_a_traceback(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text\nso good\n", "utf-8")
    command = [sys.executable, "-m", "unmask", "label", str(path), "--no-browser"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 2 and "Traceback" not in result.stderr
    assert f"unmask label {path} --labels positive,negative" in result.stderr


def test_label_server_starts_without_torch() -> None:
    code = (
        "import sys, unmask.server.labeling, unmask.server.run, unmask.labels.label_file; print('torch' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "False"
