"""Which regular expressions of a tokenizer.json are run: those whose time grows with the text, not with its square or worse.

The library's engine tries every way of matching, so that `(a+)+b` needs longer than anyone waits on thirty letters. A
pattern is accepted when none of its repetitions can be taken back: an unlimited one (`+`, `*`, `{2,}`) repeats a single
character or class, and what stands behind it in its alternative may be empty. The patterns of GPT-2, GPT-4, Llama, Qwen,
DeepSeek, T5 and BLOOM are such, but for a few parts, which are listed.
"""

import math
import re
from collections.abc import Iterator

# Whole alternatives that take back at most what the next alternative then takes.
BLANKS = (r"\s*[\r\n]+", r"\s*[\r\n]", r"\s+(?!\S)", r"\s+$")
O200K = (  # GPT-4o's: words by case
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
)
LONGEST = 2000  # characters of a pattern
WAYS = 1000  # in which the limited repetitions of one alternative may match

_ATOM = re.compile(
    r"\\[pP]\{\^?\w+\}|\\[xu]\{\w+\}|\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|\\[^1-9kgKpPXQEC]|[^\\()\[\]|*+?{}]|[{}](?!\d)"
)
_REPEAT = re.compile(r"([*+?]|\{(\d*)(,?)(\d*)\})[?+]?")
_OPEN = re.compile(r"\((?:\?(?:[imx-]*:|<?[=!]))?")


def is_quick(pattern: str) -> bool:
    r"""
    >>> is_quick(r"'s|'t| ?\p{L}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), is_quick(" {2,}")
    (True, True)
    >>> is_quick("(a+)+b"), is_quick("a*b"), is_quick(r"(x)\1"), is_quick("(?:a|a)*")
    (False, False, False, False)
    """
    if len(pattern) > LONGEST:
        return False
    try:
        alternatives = list(_split(pattern.replace("\r", r"\r").replace("\n", r"\n")))
        blanks = r"\s+" in alternatives
        return all((a in BLANKS and blanks) or a in O200K or _ends_in_repeat(a) is not None for a in alternatives)
    except ValueError:
        return False


def _split(pattern: str) -> Iterator[str]:
    """The alternatives at the top."""
    start = at = 0
    while at < len(pattern):
        if pattern[at] == "|":
            yield pattern[start:at]
            start = at = at + 1
        else:
            at = _end(pattern, at)
    yield pattern[start:]


def _end(pattern: str, at: int) -> int:
    """Where the atom, class, group or repetition that begins at `at` ends."""
    if pattern[at] == "[":
        return _end_of_class(pattern, at)
    if pattern[at] == "(":
        at = at + 1
        while at < len(pattern) and pattern[at] != ")":
            at = at + 1 if pattern[at] in "|?" else _end(pattern, at)
        if at >= len(pattern):
            raise ValueError("a group without an end")
        return at + 1
    found = _ATOM.match(pattern, at) or _REPEAT.match(pattern, at)
    if found is None:
        raise ValueError(f"unknown: {pattern[at:]}")
    return found.end()


def _end_of_class(pattern: str, at: int) -> int:
    depth = 0
    while at < len(pattern):
        if pattern[at] == "\\":
            at += 1
        elif pattern[at] == "[":
            depth += 1
            at += pattern[at + 1 : at + 2] == "^"
            at += pattern[at + 1 : at + 2] == "]"  # as the first it stands for itself
        elif pattern[at] == "]":
            depth -= 1
            if not depth:
                return at + 1
        at += 1
    raise ValueError("a class without an end")


def _ends_in_repeat(part: str) -> bool | None:
    """Of one alternative: whether it has an unlimited repetition; None where one may be taken back."""
    at, endless, ways = 0, False, 1
    while at < len(part):
        end = _end(part, at)
        inner = _of_group(part[at:end]) if part[at] == "(" else False
        repeat = _REPEAT.match(part, end)
        least, most = _times(repeat)
        unlimited = math.isinf(most)
        if inner is None or (part[at] == "(" and most > 1):
            return None  # a group that is bad, or is repeated
        if endless and least > 0:
            return None  # what follows an unlimited repetition may fail, and it would be taken back
        endless = endless or unlimited or inner
        ways *= 1 if unlimited else int(most) - least + 1
        if ways > WAYS:
            return None
        at = repeat.end() if repeat else end
    return endless


def _of_group(group: str) -> bool | None:
    opening = _OPEN.match(group)
    assert opening is not None
    if group[opening.end()] == "?":  # a kind of group that is not known here
        return None
    inside = [_ends_in_repeat(part) for part in _split(group[opening.end() : -1])]
    look = opening[0].endswith(("=", "!"))
    return None if None in inside or (look and any(inside)) else any(inside)


def _times(repeat: re.Match[str] | None) -> tuple[int, float]:
    """How often at least and at most."""
    if repeat is None:
        return 1, 1
    if repeat[1] in ("*", "+", "?"):
        return (1 if repeat[1] == "+" else 0), (1 if repeat[1] == "?" else math.inf)
    least = int(repeat[2] or 0)
    most = math.inf if repeat[3] and not repeat[4] else int(repeat[4] or least)
    return least, math.inf if most > WAYS else most
