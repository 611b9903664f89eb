"""Every command in the documentation: where to find it and how a test runs it in seconds.

All changes to a command are made here: training budgets become one or two steps (`small`), a new model gets a small shape,
`learn` gets seconds, `serve`, `studio` and `label` get a free port. Commands that cannot run here are checked as far as possible: `CHECKED` lists each program and the
reason. A program in neither table fails the test that finds it.
"""

import gzip
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

from unmask.cli import app

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PYTHON = "# python\n"
USUAL = "127.0.0.1:8000"  # default address of a server
PROGRAMS = ("unmask", "torchrun", "pytest", "python", "make", "pip", "tensorboard", "curl", "head", "cat", "zcat")
SETTING = re.compile(r"[A-Z_]+=")  # environment variable before a command
PIPED = {"cat": open, "zcat": gzip.open}  # commands that may feed a pipe
SHELL = ("curl", "head")  # run unchanged
SHAPE = {"hidden": 32, "heads": 4, "layers": 1, "intermediate": 64}
BUDGETS = {"--minutes", "--steps", "--epochs", "--tokens"}
LESS = {
    "--num-seeds": "2",
    "--trials": "1",
    "--extend-vocab": "20",
}  # option → replacement value


def fenced(path: Path) -> list[tuple[str, str]]:
    """Return (language, text) of every code block."""
    return re.findall(r"^```(\w*)\n(.*?)^```", path.read_text("utf-8"), re.S | re.M)


def commands(path: Path) -> list[str]:
    """Return the lines of `bash` blocks, and whole `python` blocks with a marker as their first line."""
    lines = []
    for language, block in fenced(path):
        if language == "python":
            lines.append(PYTHON + block)
        elif language == "bash":
            lines += [line for line in block.replace("\\\n", " ").splitlines() if line.strip()]
    return lines


def inline(path: Path) -> list[str]:
    """Return commands between backquotes in prose and tables."""
    prose = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.S | re.M)
    return [code for code in re.findall(r"`([^`\n]+)`", prose) if code.partition(" ")[0] in PROGRAMS and " " in code]


def all_commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Return ("tokenizer train", its click command), … for the whole command line."""
    command = command or get_command(app)
    if hasattr(command, "commands"):
        for name, child in command.commands.items():
            yield from all_commands(child, (*path, name))
    else:
        yield " ".join(path), command


def examples(help: str) -> list[str]:
    """Return the commands below "Examples:" in a command's help, each on one line."""
    _, _, below = help.partition("Examples:\n")
    lines = re.sub(r" *\\\n *", " ", below).splitlines()
    return [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]


def small(arguments: list[str]) -> list[str]:
    """Reduce a command: pre-training takes two steps, and a new model gets a small shape. The files are already small."""
    command, rest = arguments[0], list(arguments[1:])
    for option, value in (LESS | ({"--vocab-size": "300"} if command == "prepare" else {})).items():
        rest = [value if n and rest[n - 1] == option else a for n, a in enumerate(rest)]
    if command == "learn" and "--resume" not in rest and "--dry-run" not in rest:
        rest = [a for n, a in enumerate(rest) if a != "--minutes" and not (n and rest[n - 1] == "--minutes")]
        return [command, *rest, "--minutes=0.05", "--set=train.threads=1"]
    if command not in ("pretrain", "tune") or "--resume" in rest:
        return [command, *rest]
    budget = BUDGETS if command == "pretrain" else {"--minutes"}
    rest = [a for n, a in enumerate(rest) if a not in budget and not (n and rest[n - 1] in budget)]
    if command == "tune":
        return [command, *rest, *([] if "--trials" in rest else ["--trials=1"])]
    rest += ["--steps=2", "--batch-size=4", "--set=train.max_eval_examples=16", "--set=train.threads=1"]
    rest += [] if "--max-length" in rest else ["--max-length=32"]
    if "--from" not in rest:
        rest += [f"--set=model.{k}={v}" for k, v in SHAPE.items() if not any(f"model.{k}=" in a for a in rest)]
    return [command, *rest]


def redirected(arguments: list[str]) -> tuple[list[str], str]:
    """Split off `> file`. Return the other arguments and the file; no other shell syntax is supported."""
    *words, sign, file = ["", "", *arguments]
    if sign == ">":
        arguments = words[2:]
    assert not {">", ">>", "<", "|", "&&", ";"} & set(arguments), arguments
    return arguments, file if sign == ">" else ""


@contextmanager
def served(arguments: list[str], settings: dict[str, str] | None = None) -> Iterator[str]:
    """Run `unmask serve …`, `studio` or `label` in a subprocess. Yield host:port once it listens, then stop it and check that it exits cleanly."""
    here = ["127.0.0.1" if a == "0.0.0.0" else a for a in without_port(arguments)]
    headless = ["--no-browser"] if here[0] == "label" and "--no-browser" not in here else []
    command = [sys.executable, "-m", "unmask", *here, "--port", "0", *headless]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | (settings or {})) as process:
        assert process.stdout
        try:
            output = ""
            for line in process.stdout:
                output += line
                if "Ctrl-C" in line:
                    break
            address = re.search(r"http://([\d.]+:\d+)", output)
            assert address, output
            yield address[1]
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()


# ------------------------------------------------------------------------------------------------ checked but not run


def check_tests(words: list[str]) -> None:
    """pytest: check that the tests exist. They are part of this suite or of `make slow`."""
    paths = [word for word in words[1:] if word.startswith("tests")]
    assert paths and all((ROOT / path).exists() for path in paths), words


def check_script(words: list[str]) -> None:
    """python bench/…: check that the script exists and accepts the flags. It runs for minutes to hours, and some scripts need other data."""
    source = (ROOT / words[1]).read_text("utf-8")
    assert all(f'"{word}"' in source for word in words if word.startswith("--")), words


def check_target(words: list[str]) -> None:
    """make: check that the target exists. Each target creates its own environment."""
    subprocess.run(["make", "-n", words[1]], cwd=ROOT, check=True, capture_output=True)


def check_extras(words: list[str]) -> None:
    """pip: check that the extras are declared. Installing needs the network."""
    extras = re.search(r"^(?:unmask|\.)\[(.+)\]$", words[2])
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras and set(extras[1].split(",")) <= set(known), words


CHECKED = {
    "pytest": check_tests,
    "python": check_script,
    "make": check_target,
    "pip": check_extras,
    "tensorboard": lambda words: (
        None
    ),  # another project's server; tests/train/test_tensorboard.py reads the files it would read
}


def check_spelling(line: str) -> None:
    """Check that the command exists, if one is named, and has the named flags."""
    words = shlex.split(line, comments=True)
    known = dict(all_commands())
    depth = 2 if len(words) > 2 and " ".join(words[1:3]) in known else 1
    name = " ".join(words[1 : 1 + depth])
    if name == "--help":
        return
    assert name in known, f"no command {name!r}: {line}"
    flags = {flag for option in known[name].params for flag in (*option.opts, *option.secondary_opts)} | {"--help"}
    unknown = [word for word in words if word.startswith("--") and word.partition("=")[0] not in flags]
    assert not unknown, f"{name} has no {unknown}: {line}"


# ---------------------------------------------------------------------------------------------------------------- running


class Session:
    """Runs the commands of one document in the current directory, in order."""

    def __init__(self, servers: ExitStack, placeholders: dict[str, str] | None = None):
        self.servers, self.placeholders = servers, placeholders or {}
        self.names: dict[str, Any] = {"__name__": "guide"}
        self.address = USUAL
        self.keep = True  # whether a server keeps running until the end of the document

    def run(self, line: str) -> str:
        """Run a command or a python block; return its output."""
        line = line.replace(USUAL, self.address)
        if line.startswith(PYTHON):
            shorter = line  # tune: minutes limit the search
            if "unmask.learn(" in line:
                shorter = re.sub(r"minutes=\d+", "minutes=0.05", line)
            elif "unmask.tune(" not in line:
                shorter = re.sub(r"minutes=\d+", "steps=2", line)
            exec(compile(shorter, "a python block", "exec"), self.names)
            return ""
        words = [self.placeholders.get(word, word) for word in shlex.split(line, comments=True)]
        settings = dict(word.split("=", 1) for word in itertools.takewhile(SETTING.match, words))
        words = words[len(settings) :]
        program = words[0]
        assert program in PROGRAMS, f"no test knows how to run {program!r}, of {line!r}"
        if program in CHECKED:
            CHECKED[program](words)
        elif program in SHELL:
            subprocess.run(["bash", "-c", line], check=True)
        elif program == "torchrun":
            at = words.index("unmask") + 1
            several = ["torch.distributed.run", "--standalone", *words[1:at], *small(words[at:])]
            subprocess.run([sys.executable, "-m", *several], check=True, capture_output=True, timeout=300)
        else:
            stdin = ""
            if program in PIPED:  # cat FILE | unmask …
                assert words[2:4] == ["|", "unmask"], line
                stdin, words = PIPED[program](words[1], "rt", encoding="utf-8").read(), words[3:]
            check_spelling(shlex.join(words))
            return self.unmask(words[1:], line, stdin, settings)
        return ""

    def unmask(self, arguments: list[str], line: str, stdin: str, settings: dict[str, str]) -> str:
        if arguments[0] in ("serve", "studio", "label"):
            if self.keep:
                self.address = self.servers.enter_context(served(arguments, settings))
            else:
                with served(arguments, settings):
                    return ""
            return ""
        arguments, file = redirected(arguments)
        expanded = [path for a in arguments for path in (sorted(map(str, Path().glob(a))) if "*" in a else [a])]
        result = CliRunner().invoke(app, small(expanded), input=stdin, env=settings)
        assert result.exit_code == 0, (line, result.output, result.exception)
        if file:
            Path(file).write_text(result.stdout, "utf-8")
        if file.endswith(".json"):
            json.loads(result.stdout)
        return result.stdout


def without_port(arguments: list[str]) -> list[str]:
    return [a for n, a in enumerate(arguments) if a != "--port" and arguments[n - 1] != "--port"]
