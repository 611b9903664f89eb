"""Plain vocabulary in code, messages and docs: words of the project's former dialect fail the tests, with suggestions.

Docs must contain none of them. A package may contain at most the number in `LEFT`; these numbers may only shrink.
"""

import re
from collections import Counter
from pathlib import Path

import pytest

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
LEFT = {"tasks": 1, "train": 1}
QUOTED = {"docs/log.md"}  # quotes former names


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


@pytest.mark.parametrize("file", sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]), ids=lambda file: file.name)
def test_docs_use_plain_words(file: Path) -> None:
    if str(file.relative_to(ROOT)) not in QUOTED:
        words_found = dialect(file.read_text("utf-8"))
        assert not words_found, f"{file.relative_to(ROOT)}: {advice(words_found)}"


def test_package_uses_plain_words() -> None:
    counts: Counter[str] = Counter()
    words: dict[str, list[str]] = {}
    for file in sorted((ROOT / "unmask").rglob("*.py")):
        package = file.relative_to(ROOT / "unmask").parts[0]
        words_found = dialect(file.read_text("utf-8"))
        counts[package] += len(words_found)
        words.setdefault(package, []).extend(words_found)
    more = {
        p: f"{n} instead of at most {LEFT.get(p, 0)}: {advice(words[p])}"
        for p, n in counts.items()
        if n > LEFT.get(p, 0)
    }
    assert not more, more
    fewer = {p: counts[p] for p, n in LEFT.items() if counts[p] < n}
    assert not fewer, f"lower the numbers in LEFT: {fewer}"


def test_every_word_is_recognized() -> None:
    assert all(
        dialect(text) for text in ("so many rows", "it is no file", "goes on with it", "beside the model", "by lot")
    )
