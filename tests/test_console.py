"""The terminal interprets nothing that comes from a file, a path or a model: no emoji, no markup, no control characters."""

import ast
import io
import json
import os
import pty
import shlex
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from runs.tiny import labeled, model_folder
from typer.testing import CliRunner

import unmask
from unmask.cli import app
from unmask.console import Console, make_table, visible, write, write_json

ROOT = Path(unmask.__file__).parent
HOSTILE = [
    "file:100:",
    ":100:",
    ":warning:",
    "[red]x[/red]",
    "[/]",
    "\x1b[31mred",
    "\x9b31m",
    "a\u202eb",
    "\x07\x08\x7f",
]
CONTROL_CHARACTERS = "\x07\x08\x7f\x9b\u202e"  # and ESC, which is also used for colors


def run_in(folder: Path, *words: str) -> Any:
    with chdir(folder):
        return CliRunner().invoke(app, list(words))


@pytest.mark.parametrize("text", HOSTILE)
def test_every_print_function_escapes_text(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = visible(text)
    assert len(shown) == len(text) and not set(shown) & set(CONTROL_CHARACTERS + "\x1b")
    table = make_table(text, ">")
    table.add_row(text, "1")
    console = Console()
    print_functions = [
        lambda: write(text),
        lambda: write(table),
        lambda: console.say(text),
        lambda: console.warn(text),
        lambda: console.fail(text),
    ]
    for print_text in print_functions:
        print_text()
        out = "".join(capsys.readouterr())
        assert shown in out and not set(out) & set(CONTROL_CHARACTERS + "\x1b")
    write_json({text: text})
    out = capsys.readouterr().out
    assert json.loads(out) == {text: text} and not set(out) & set(CONTROL_CHARACTERS + "\x1b")


@pytest.mark.parametrize("text", HOSTILE)
def test_progress_bar_escapes_text(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO())
    console = Console()
    assert console.rich.is_terminal
    with console.bar(text) as update:
        update(1, 2, f"message {text}")
    assert f"message {visible(text)}" in stream.getvalue()
    assert not set(stream.getvalue()) & set(CONTROL_CHARACTERS)


def test_file_name_is_not_printed_as_an_emoji(tmp_path: Path) -> None:
    """Regression test: `file:100:` was printed as 💯."""
    (tmp_path / "file.csv").write_text("text,label\n" + "so,a\nor,b\n" * 49 + ",a\n" + "so,a\n" * 5)
    model = str(model_folder(tmp_path / "start"))
    for words in (["doctor", "file.csv", "--task", "classify"], ["finetune", model, "--train", "file.csv"]):
        result = run_in(tmp_path, *words)
        assert "file.csv:100: " in result.stdout + result.stderr


def test_labels_are_printed_escaped(tmp_path: Path, no_report: None) -> None:
    labels = ["\x1b]0;title\x07\x1b[31m[red]:100:", "two\nlines \x9b31m \u202e"]
    rows = [{"text": f"so it is {n}", "label": labels[n % 2]} for n in range(40)]
    (tmp_path / "[red]:100:.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    start = str(model_folder(tmp_path / "start"))
    words = ["--train", "[red]:100:.jsonl", "--task", "classify", "--steps", "1"]
    dry = run_in(tmp_path, "finetune", start, *words, "--dry-run")
    run = run_in(tmp_path, "finetune", start, *words, "--out", "run")
    info = run_in(tmp_path, "info", "run")
    model = run_in(tmp_path, "info", "run/model")
    answers = run_in(tmp_path, "predict", "run", "[red]:100:.jsonl")
    wrong = run_in(tmp_path, "explain", "run", "so it is", "--target", "\x1b[31m")
    for done in (dry, run, info, model, answers):
        assert done.exit_code == 0, done.stderr
        assert not set(done.stdout + done.stderr) & set(CONTROL_CHARACTERS + "\x1b")
    assert wrong.exit_code == 2 and "\x1b" not in wrong.stderr and "\x9b" not in wrong.stderr
    assert len(answers.stdout.splitlines()) == len(rows)
    assert "[red]:100:" in dry.stdout + dry.stderr


def test_error_on_a_real_terminal_is_escaped(tmp_path: Path) -> None:
    """On a real terminal, where rich prints colors: an error that names a path."""
    master, slave = pty.openpty()
    words = ["fill", "no\x1b]0;title\x07/[red]:100:/x", "a [MASK]"]
    done = subprocess.run([sys.executable, "-m", "unmask", *words], cwd=tmp_path, stderr=slave, timeout=240)
    os.close(slave)
    output = os.read(master, 65536).decode()
    os.close(master)
    assert done.returncode == 2 and "no␛]0;title␇/[red]:100:/x" in output and "\x1b]0" not in output


def test_suggested_command_works_for_a_directory_with_a_leading_dash(tmp_path: Path, no_report: None) -> None:
    labeled(tmp_path / "train.csv", 40)
    model_folder(tmp_path / "start")
    words = ["finetune", "start", "--train", "train.csv", "--steps", "1", "--out=-my run"]
    done = run_in(tmp_path, *words)
    assert done.exit_code == 0, done.stderr
    predict = next(line for line in done.stdout.splitlines() if line.startswith("unmask predict"))
    info = run_in(tmp_path, "info", "./-my run")
    use = next(line.partition("unmask ")[2] for line in info.stdout.splitlines() if line.startswith("use"))
    again = run_in(tmp_path, *words)  # raises: the run exists
    resume = again.stderr.partition("resume it: unmask ")[2].splitlines()[0]
    for command in (predict.removeprefix("unmask ").replace("…", "'so it is'"), use, resume):
        assert "'./-my run" in command
        done = run_in(tmp_path, *shlex.split(command))
        assert done.exit_code == 0, done.stderr


def calls(tree: ast.AST) -> set[str]:
    """Return the calls in a file as they are written: print, typer.echo, sys.stdout.write."""
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


def rich_names(tree: ast.AST) -> set[str]:
    """Return the names of imported rich objects that print by themselves."""
    imported = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and (n.module or "").startswith("rich")]
    return {a.asname or a.name for n in imported for a in n.names if a.name in ("Console", "Progress", "Live", "print")}


def test_only_the_console_prints() -> None:
    banned = {"print", "typer.echo", "typer.secho", "sys.stdout.write", "sys.stderr.write", "rich.print", "click.echo"}
    for file in sorted(ROOT.rglob("*.py")):
        if file != ROOT / "console.py":
            tree = ast.parse(file.read_text("utf-8"))
            assert not calls(tree) & (banned | rich_names(tree)), f"{file.relative_to(ROOT)}: use unmask.console"
    assert "sys.stdout.write" in calls(ast.parse((ROOT / "console.py").read_text("utf-8")))


def test_hint_works_for_a_file_with_a_leading_dash(tmp_path: Path) -> None:
    rows = "".join(f"gj04\t{n % 2}\tThe sailors rode the breeze {n}.\n" for n in range(40))
    (tmp_path / "-my table.tsv").write_text(rows)
    done = run_in(tmp_path, "doctor", "--", "-my table.tsv")
    assert done.exit_code == 2 and "hint:     unmask doctor './-my table.tsv' --task classify" in done.stderr
    command = done.stderr.partition("hint:     unmask ")[2].partition(" (")[0]
    done = run_in(tmp_path, *shlex.split(command))
    assert done.exit_code == 0, done.output


def test_only_errors_module_quotes_for_the_shell() -> None:
    for file in sorted(ROOT.rglob("*.py")):
        if file != ROOT / "errors.py":
            assert "shlex.quote" not in calls(ast.parse(file.read_text("utf-8"))), (
                f"{file.relative_to(ROOT)}: use errors.quote"
            )
