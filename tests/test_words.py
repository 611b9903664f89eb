"""Plain vocabulary in code, messages and docs: words of the project's former dialect fail the tests, with suggestions.

`QUOTED` lists the files that need an old word, because they read old formats or quote them.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORDS = {  # pattern → what to write instead
    r"\blearnt\b": "learned, trained, fitted",
    r"\bbegun\b|\banew\b": "started, again",
    r"\bgo(?:es)? on with\b": "continue, resume",
    r"\bso many (?!of|times)": "N, this many",
    r"(?<!there )\bis no (?!longer|more|less)[a-z]+": "is not a …",
    r"\bfate\b": "what happens to …",
    r"\b(?:is|are|was) (?:said|told)\b": "is printed, logged, given",
    r"\bdrawn (?:at random|anew|by lot)\b|\bby lot\b": "sampled, randomly initialized",
    r"\bdear on\b": "expensive on",
    r"\bbeside (?:it|the|its|a)\b": "next to, in addition to",
    r"\blacking\b": "missing",
    r"\bjudged by\b": "evaluated with",
}
QUOTED = {  # files that quote old names: formats of version 0.1, seed strings, test data
    "docs/log.md", "tests/golden/recordings.py", "tests/golden/renamed.py", "tests/labels/test_layout.py",
    "tests/objectives/test_units.py", "tests/test_words.py",
    "unmask/tasks/folder.py", "unmask/train/run_files.py",
}  # fmt: skip
FILES = ("*.md", "docs/*.md", "unmask/**/*.py", "unmask/**/*.html", "unmask/**/*.js", "unmask/**/*.yaml", "tests/**/*.py", "bench/**/*.py", "scripts/*.py")  # fmt: skip


def dialect(text: str) -> list[str]:
    """
    >>> dialect("the weights are learnt anew"), dialect("the weights are trained again")
    (['learnt', 'anew'], [])
    """
    return [match[0] for match in re.finditer("|".join(WORDS), text, re.IGNORECASE)]


def advice(words: list[str]) -> str:
    return "; ".join(
        f"{word!r} → {write}"
        for word in sorted(set(words))
        for pattern, write in WORDS.items()
        if re.search(pattern, word + " x", re.IGNORECASE)
    )


def test_code_and_docs_are_in_plain_words() -> None:
    problems = {}
    for path in sorted({path for pattern in FILES for path in ROOT.glob(pattern)}):
        name = path.relative_to(ROOT).as_posix()
        if name not in QUOTED and (found := dialect(path.read_text("utf-8"))):
            problems[name] = advice(found)
    assert not problems, problems


def test_quoted_files_still_quote() -> None:
    assert [name for name in sorted(QUOTED) if not dialect((ROOT / name).read_text("utf-8"))] == []


def test_every_word_is_recognized() -> None:
    assert all(
        dialect(text) for text in ("so many rows", "it is no file", "goes on with it", "beside the model", "by lot")
    )
