"""The guides work: every `bash` block of docs/*.md runs line by line in an empty directory with a tiny budget, and so does every
`python` block, with one namespace per guide (see `documented.py`).

Guides in another language have the same blocks, which are compared but not run again. `unmask serve`, `studio` and `label` run in the
background, on a free port instead of 8000, until the guide ends.
"""

from contextlib import ExitStack
from pathlib import Path

import pytest
from documented import DOCS, Session, commands, redirected

REFERENCE = {
    "mission",
    "objectives",
    "recipe",
    "results",
    "design",
    "log",
}  # they need models and files: see test_commands.py
GUIDES = [
    p for p in sorted(DOCS.glob("*.md")) if not p.name.endswith(".zh.md") and p.stem not in REFERENCE and commands(p)
]


@pytest.mark.parametrize("guide", GUIDES, ids=lambda p: p.stem)
def test_commands_of_a_guide_work(guide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with ExitStack() as servers:
        session = Session(servers)
        for line in commands(guide):
            session.run(line)


def test_output_is_redirected_to_a_file() -> None:
    assert redirected(["unmask", "predict", ">", "a.json"]) == (["unmask", "predict"], "a.json")
    assert redirected(["unmask"]) == (["unmask"], "") and redirected(["unmask", "a > b"]) == (["unmask", "a > b"], "")
    with pytest.raises(AssertionError):
        redirected(["unmask", "predict", "|", "head"])


@pytest.mark.parametrize("guide", sorted(DOCS.glob("*.zh.md")), ids=lambda p: p.stem)
def test_translated_guide_has_the_same_commands(guide: Path) -> None:
    assert commands(guide) == commands(guide.with_name(guide.name.replace(".zh.md", ".md")))
