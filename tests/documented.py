"""Every command that the documentation shows: where it stands, and how a test runs it in seconds.

What is changed of a command is changed here and nowhere else: budgets become a step or two (`small`), a new model gets a small shape,
`serve` and `studio` get a free port. What cannot run here is checked as far as it can be: `CHECKED` names each program and the reason.
A program that is in neither table fails the test that finds it.
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
USUAL = "127.0.0.1:8000"  # where a server listens
PROGRAMS = ("unmask", "torchrun", "pytest", "python", "make", "pip", "tensorboard", "curl", "head", "cat", "zcat")
SETTING = re.compile(r"[A-Z_]+=")  # of the environment, before a command
PIPED = {"cat": open, "zcat": gzip.open}  # what a command reads from
SHELL = ("curl", "head")  # run as they are
SHAPE = {"hidden": 32, "heads": 4, "layers": 1, "intermediate": 64}
BUDGETS = {"--minutes", "--steps", "--epochs", "--tokens"}
LESS = {
    "--num-seeds": "2",
    "--trials": "1",
    "--extend-vocab": "20",
}  # option → value that is given instead


def fenced(path: Path) -> list[tuple[str, str]]:
    """(language, text) of every code block."""
    return re.findall(r"^```(\w*)\n(.*?)^```", path.read_text("utf-8"), re.S | re.M)


def commands(path: Path) -> list[str]:
    """Lines of `bash` blocks and whole `python` blocks, the latter marked by a first line."""
    found = []
    for language, block in fenced(path):
        if language == "python":
            found.append(PYTHON + block)
        elif language == "bash":
            found += [line for line in block.replace("\\\n", " ").splitlines() if line.strip()]
    return found


def inline(path: Path) -> list[str]:
    """Commands between backquotes in prose and tables."""
    prose = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.S | re.M)
    return [code for code in re.findall(r"`([^`\n]+)`", prose) if code.partition(" ")[0] in PROGRAMS and " " in code]


def verbs(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """("tokenizer train", click's command), … of the whole command line."""
    command = command or get_command(app)
    if hasattr(command, "commands"):
        for name, child in command.commands.items():
            yield from verbs(child, (*path, name))
    else:
        yield " ".join(path), command


def examples(help: str) -> list[str]:
    """The commands below "Examples:" in a command's help, each on one line."""
    _, _, below = help.partition("Examples:\n")
    lines = re.sub(r" *\\\n *", " ", below).splitlines()
    return [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]


def small(arguments: list[str]) -> list[str]:
    """The same command, its pre-training two steps long, and of a small shape where a new model is made; files are small already."""
    verb, rest = arguments[0], list(arguments[1:])
    for option, value in (LESS | ({"--vocab-size": "300"} if verb == "prepare" else {})).items():
        rest = [value if n and rest[n - 1] == option else a for n, a in enumerate(rest)]
    if verb not in ("pretrain", "tune") or "--resume" in rest:
        return [verb, *rest]
    budget = BUDGETS if verb == "pretrain" else {"--minutes"}
    rest = [a for n, a in enumerate(rest) if a not in budget and not (n and rest[n - 1] in budget)]
    if verb == "tune":
        return [verb, *rest, *([] if "--trials" in rest else ["--trials=1"])]
    rest += ["--steps=2", "--batch-size=4", "--set=train.max_eval_examples=16", "--set=train.threads=1"]
    rest += [] if "--max-length" in rest else ["--max-length=32"]
    if "--from" not in rest:
        rest += [f"--set=model.{k}={v}" for k, v in SHAPE.items() if not any(f"model.{k}=" in a for a in rest)]
    return [verb, *rest]


def redirected(arguments: list[str]) -> tuple[list[str], str]:
    """The arguments without `> file`, and the file; what a shell would do with other signs is not done here."""
    *words, sign, file = ["", "", *arguments]
    if sign == ">":
        arguments = words[2:]
    assert not {">", ">>", "<", "|", "&&", ";"} & set(arguments), arguments
    return arguments, file if sign == ">" else ""


@contextmanager
def served(arguments: list[str], settings: dict[str, str] | None = None) -> Iterator[str]:
    """`unmask serve …` in a process of its own, from when it listens; gives host:port. Told to stop, it ends well."""
    here = ["127.0.0.1" if a == "0.0.0.0" else a for a in without_port(arguments)]
    command = [sys.executable, "-m", "unmask", *here, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | (settings or {})) as process:
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


# ------------------------------------------------------------------------------------- what is checked without being run


def check_tests(words: list[str]) -> None:
    """pytest: that the tests are there. They are part of this suite, or of `make slow`."""
    paths = [word for word in words[1:] if word.startswith("tests")]
    assert paths and all((ROOT / path).exists() for path in paths), words


def check_script(words: list[str]) -> None:
    """python bench/…: that the script is there and knows the flags. It takes minutes to hours, and some need other data."""
    source = (ROOT / words[1]).read_text("utf-8")
    assert all(f'"{word}"' in source for word in words if word.startswith("--")), words


def check_target(words: list[str]) -> None:
    """make: that the target is there. Each sets up an environment of its own."""
    subprocess.run(["make", "-n", words[1]], cwd=ROOT, check=True, capture_output=True)


def check_extras(words: list[str]) -> None:
    """pip: that the extras are declared. Installing needs the network."""
    extras = re.search(r"^(?:unmask|\.)\[(.+)\]$", words[2])
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras and set(extras[1].split(",")) <= set(known), words


CHECKED = {
    "pytest": check_tests,
    "python": check_script,
    "make": check_target,
    "pip": check_extras,
    "tensorboard": lambda words: None,  # another project's server; tests/train/test_track.py reads what it reads
}


def check_spelling(line: str) -> None:
    """That a verb, where one is named, is one, and has the flags that are named."""
    words = shlex.split(line, comments=True)
    known = dict(verbs())
    depth = 2 if len(words) > 2 and " ".join(words[1:3]) in known else 1
    name = " ".join(words[1 : 1 + depth])
    if name == "--help":
        return
    assert name in known, f"no verb {name!r}: {line}"
    flags = {flag for option in known[name].params for flag in (*option.opts, *option.secondary_opts)} | {"--help"}
    strange = [word for word in words if word.startswith("--") and word.partition("=")[0] not in flags]
    assert not strange, f"{name} has no {strange}: {line}"


# ---------------------------------------------------------------------------------------------------------------- running


class Session:
    """Runs the commands of one document in the current folder, one after another."""

    def __init__(self, servers: ExitStack, placeholders: dict[str, str] | None = None):
        self.servers, self.placeholders = servers, placeholders or {}
        self.names: dict[str, Any] = {"__name__": "guide"}
        self.address = USUAL
        self.keep = True  # whether a server goes on until the document ends

    def run(self, line: str) -> str:
        """Run a command or a python block; what it printed."""
        line = line.replace(USUAL, self.address)
        if line.startswith(PYTHON):
            shorter = (
                line if "unmask.tune(" in line else re.sub(r"minutes=\d+", "steps=2", line)
            )  # tune: limits the search
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
            given = ""
            if program in PIPED:  # cat FILE | unmask …
                assert words[2:4] == ["|", "unmask"], line
                given, words = PIPED[program](words[1], "rt", encoding="utf-8").read(), words[3:]
            check_spelling(shlex.join(words))
            return self.unmask(words[1:], line, given, settings)
        return ""

    def unmask(self, arguments: list[str], line: str, given: str, settings: dict[str, str]) -> str:
        if arguments[0] in ("serve", "studio"):
            if self.keep:
                self.address = self.servers.enter_context(served(arguments, settings))
            else:
                with served(arguments, settings):
                    return ""
            return ""
        arguments, file = redirected(arguments)
        expanded = [path for a in arguments for path in (sorted(map(str, Path().glob(a))) if "*" in a else [a])]
        result = CliRunner().invoke(app, small(expanded), input=given, env=settings)
        assert result.exit_code == 0, (line, result.output, result.exception)
        if file:
            Path(file).write_text(result.stdout, "utf-8")
        if file.endswith(".json"):
            json.loads(result.stdout)
        return result.stdout


def without_port(arguments: list[str]) -> list[str]:
    return [a for n, a in enumerate(arguments) if a != "--port" and arguments[n - 1] != "--port"]
