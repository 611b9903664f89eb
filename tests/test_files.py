"""Atomic writes: a reader or another process sees either the old file or the new one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from unmask.errors import UserError
from unmask.files import new_file, new_folder, read_lines, write_json, write_lines, write_text


def names(folder) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_failed_write_changes_nothing(tmp_path):
    write_text(tmp_path / "a", "old")

    def write_partially(opened):
        with opened as new:
            if isinstance(new, Path):
                new = open(new / "x", "wb")  # noqa: SIM115
            new.write(b"new")
            new.flush()
            assert (tmp_path / "a").read_text() == "old"
            raise ZeroDivisionError

    for opened in (new_file(tmp_path / "a"), new_folder(tmp_path / "b")):
        with pytest.raises(ZeroDivisionError):
            write_partially(opened)
    assert names(tmp_path) == ["a"] and (tmp_path / "a").read_text() == "old"


def test_data_is_synced_before_the_rename(tmp_path, monkeypatch):
    done = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (done.append("sync"), fsync(handle)))
    monkeypatch.setattr(os, "replace", lambda a, b: (done.append("name"), replace(a, b)))
    write_json(tmp_path / "a.json", {"ä": [1]})
    assert done == ["sync", "name", "sync"]
    done.clear()
    with new_folder(tmp_path / "b") as folder:
        (folder / "x").mkdir()
        (folder / "x" / "y").write_text("")
    assert done == ["sync", "sync", "sync", "name", "sync"]
    assert (tmp_path / "a.json").read_text("utf-8") == '{\n "ä": [\n  1\n ]\n}\n'


def test_directory_is_replaced_only_on_request(tmp_path):
    for text in ("old", "new"):
        with new_folder(tmp_path / "a", replace=True) as folder:
            (folder / text).write_text("")
    assert names(tmp_path) == ["a"] and names(tmp_path / "a") == ["new"]
    with pytest.raises(OSError), new_folder(tmp_path / "a"):
        pass
    assert names(tmp_path) == ["a"] and names(tmp_path / "a") == ["new"]
    (tmp_path / "empty").mkdir()
    with new_folder(tmp_path / "empty") as folder:
        (folder / "x").write_text("")
    assert names(tmp_path / "empty") == ["x"]


def test_partial_files_of_dead_processes_are_removed(tmp_path):
    exited = subprocess.Popen([sys.executable, "-c", ""])
    exited.wait()
    for name in (f"a.{exited.pid}", f"a.{os.getppid()}", f"b.{exited.pid}"):
        (tmp_path / f"{name}.partial").mkdir()
    with new_folder(tmp_path / "a"):
        pass
    assert names(tmp_path) == sorted(["a", f"a.{os.getppid()}.partial", f"b.{exited.pid}.partial"])


def test_only_newlines_separate_lines(tmp_path):
    values = [{"text": "a\u2028b\u0085c\x0bd"}, "", [1, None]]
    write_lines(tmp_path / "a.jsonl", values)
    assert list(read_lines(tmp_path / "a.jsonl")) == values
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n\n{"a": \n')
    with pytest.raises(UserError, match="line 3"):
        list(read_lines(tmp_path / "a.jsonl"))
