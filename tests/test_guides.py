"""The guides say what works: every `bash` block of docs/*.md is run, line by line, on small texts and with a tiny budget, and every
`python` block, all of a guide in one namespace.

A guide in another language has the same blocks, which are compared, not run again. `unmask serve` and `unmask studio` go on in the background,
on a free port instead of 8000, until the guide ends.
"""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from unmask.cli import app

DOCS = Path(__file__).parent.parent / "docs"
PYTHON = "# python\n"
USUAL = "127.0.0.1:8000"  # where a server listens
TINY = ["--set=model.layers=1", "--set=train.eval_rows=16", "--set=train.threads=1", "--batch=4", "--length=32"]


def commands(path: Path) -> list[str]:
    """Lines of `bash` blocks and whole `python` blocks, the latter marked by a first line."""
    found = []
    for language, block in re.findall(r"^```(bash|python)\n(.*?)^```", path.read_text("utf-8"), re.S | re.M):
        if language == "python":
            found.append(PYTHON + block)
        else:
            found += [line for line in block.replace("\\\n", " ").splitlines() if line.strip()]
    return found


GUIDES = [p for p in sorted(DOCS.glob("*.md")) if not p.name.endswith(".zh.md") and commands(p)]


def tiny(arguments: list[str]) -> list[str]:
    """The same command with two steps of a small model."""
    if arguments[0] != "pretrain" or "--resume" in arguments:
        return arguments
    steps = [n + 1 for n, a in enumerate(arguments) if a == "--steps"]
    new = "--from" not in arguments
    return ["2" if n in steps else a for n, a in enumerate(arguments)] + (TINY if new else TINY[1:])


def redirected(arguments: list[str]) -> tuple[list[str], str]:
    """The arguments without `> file`, and the file; what a shell would do with other signs is not done here."""
    *words, sign, file = ["", "", *arguments]
    if sign == ">":
        arguments = words[2:]
    assert not {">", ">>", "<", "|", "&&", ";"} & set(arguments), arguments
    return arguments, file if sign == ">" else ""


@contextmanager
def served(arguments: list[str]) -> Iterator[str]:
    """`unmask serve …` in a process of its own, from when it listens; gives host:port. Told to stop, it ends well."""
    command = [sys.executable, "-m", "unmask", *arguments, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            said = ""
            for line in process.stdout:
                said += line
                if "Ctrl-C" in line:
                    break
            found = re.search(r"http://([\d.]+:\d+)", said)
            assert found, said
            yield found[1]
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the guides take as given: general/ and domain/, two texts of different words."""
    for name, words in (("general", "the list of the house and the old man"), ("domain", "metformin lowers glucose")):
        (tmp_path / name).mkdir()
        text = "\n\n".join(f"Number {n}: {words} is what it says, and {words} it is. So be it." for n in range(80))
        (tmp_path / name / "text.txt").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("guide", GUIDES, ids=lambda p: p.stem)
def test_the_commands_of_a_guide_work(guide: Path, folder: Path) -> None:
    with ExitStack() as servers:
        run_guide(guide, folder, servers)


def run_guide(guide: Path, folder: Path, servers: ExitStack) -> None:
    names: dict[str, Any] = {"__name__": "guide"}
    address = USUAL
    for line in commands(guide):
        line = line.replace(USUAL, address)
        if line.startswith(PYTHON):
            exec(compile(line, str(guide), "exec"), names)
            continue
        arguments = shlex.split(line, comments=True)
        if arguments[:1] != ["unmask"]:
            subprocess.run(["bash", "-c", line], check=True)
            continue
        if arguments[1] in ("serve", "studio"):
            address = servers.enter_context(served(arguments[1:]))
            continue
        arguments, file = redirected(arguments)
        result = CliRunner().invoke(app, tiny(arguments[1:]))
        assert result.exit_code == 0, (line, result.output, result.exception)
        if file:
            (folder / file).write_text(result.stdout, "utf-8")
        if file.endswith(".json"):
            json.loads(result.stdout)


def test_what_is_printed_goes_to_the_file() -> None:
    assert redirected(["unmask", "predict", ">", "a.json"]) == (["unmask", "predict"], "a.json")
    assert redirected(["unmask"]) == (["unmask"], "") and redirected(["unmask", "a > b"]) == (["unmask", "a > b"], "")
    with pytest.raises(AssertionError):
        redirected(["unmask", "predict", "|", "head"])


@pytest.mark.parametrize("guide", sorted(DOCS.glob("*.zh.md")), ids=lambda p: p.stem)
def test_a_translated_guide_has_the_same_commands(guide: Path) -> None:
    assert commands(guide) == commands(guide.with_name(guide.name.replace(".zh.md", ".md")))
