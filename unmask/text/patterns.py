"""Check that the regular expressions of a tokenizer.json run in linear time (no catastrophic backtracking).

The engine of the tokenizers library backtracks: `(a+)+b` takes exponential time. A pattern is accepted if no repetition can
backtrack: an unlimited one (`+`, `*`, `{2,}`) repeats a single character or class, and the rest of its alternative can match the empty
string. The patterns of GPT-2, GPT-4, Llama, Qwen, DeepSeek, T5 and BLOOM qualify, except for a few parts that are listed below.
"""

import math
import re
from collections.abc import Iterator

# Complete alternatives that give back at most the characters that the next alternative then matches.
WHITE_SPACE = (r"\s*[\r\n]+", r"\s*[\r\n]", r"\s+(?!\S)", r"\s+$")
O200K = (  # of GPT-4o: words split by case
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
)
MAX_PATTERN_CHARS = 2000
MAX_COMBINATIONS = 1000  # maximum number of combinations of repetition counts in one alternative

_ATOM = re.compile(
    r"\\[pP]\{\^?\w+\}|\\[xu]\{\w+\}|\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|\\[^1-9kgKpPXQEC]|[^\\()\[\]|*+?{}]|[{}](?!\d)"
)
_REPEAT = re.compile(r"([*+?]|\{(\d*)(,?)(\d*)\})[?+]?")
_OPEN = re.compile(r"\((?:\?(?:[imx-]*:|<?[=!]))?")


def is_linear_time(pattern: str) -> bool:
    r"""
    >>> is_linear_time(r"'s|'t| ?\p{L}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), is_linear_time(" {2,}")
    (True, True)
    >>> is_linear_time("(a+)+b"), is_linear_time("a*b"), is_linear_time(r"(x)\1"), is_linear_time("(?:a|a)*")
    (False, False, False, False)
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        return False
    try:
        parts = list(_alternatives(pattern.replace("\r", r"\r").replace("\n", r"\n")))
        has_white_space = r"\s+" in parts
        return all(
            (a in WHITE_SPACE and has_white_space) or a in O200K or _has_unlimited_repeat(a) is not None for a in parts
        )
    except ValueError:
        return False


def _alternatives(pattern: str) -> Iterator[str]:
    """Yield the top-level alternatives."""
    start = position = 0
    while position < len(pattern):
        if pattern[position] == "|":
            yield pattern[start:position]
            start = position = position + 1
        else:
            position = _element_end(pattern, position)
    yield pattern[start:]


def _element_end(pattern: str, position: int) -> int:
    """Return the end of the atom, class, group or repetition that starts at `position`."""
    if pattern[position] == "[":
        return _class_end(pattern, position)
    if pattern[position] == "(":
        position = position + 1
        while position < len(pattern) and pattern[position] != ")":
            position = position + 1 if pattern[position] in "|?" else _element_end(pattern, position)
        if position >= len(pattern):
            raise ValueError("unclosed group")
        return position + 1
    match = _ATOM.match(pattern, position) or _REPEAT.match(pattern, position)
    if match is None:
        raise ValueError(f"unsupported syntax: {pattern[position:]}")
    return match.end()


def _class_end(pattern: str, position: int) -> int:
    depth = 0
    while position < len(pattern):
        if pattern[position] == "\\":
            position += 1
        elif pattern[position] == "[":
            depth += 1
            position += pattern[position + 1 : position + 2] == "^"
            position += pattern[position + 1 : position + 2] == "]"  # as the first character of a class it is literal
        elif pattern[position] == "]":
            depth -= 1
            if not depth:
                return position + 1
        position += 1
    raise ValueError("unclosed character class")


def _has_unlimited_repeat(part: str) -> bool | None:
    """Return whether an alternative has an unlimited repetition, or None if it could backtrack."""
    position, unlimited_before, combinations = 0, False, 1
    while position < len(part):
        end = _element_end(part, position)
        inner = _group_has_unlimited_repeat(part[position:end]) if part[position] == "(" else False
        repeat = _REPEAT.match(part, end)
        low, high = _repeat_range(repeat)
        unlimited = math.isinf(high)
        if inner is None or (part[position] == "(" and high > 1):
            return None  # a group that backtracks or is repeated
        if unlimited_before and low > 0:
            return None  # if the rest fails to match, the unlimited repetition before it backtracks
        unlimited_before = unlimited_before or unlimited or inner
        combinations *= 1 if unlimited else int(high) - low + 1
        if combinations > MAX_COMBINATIONS:
            return None
        position = repeat.end() if repeat else end
    return unlimited_before


def _group_has_unlimited_repeat(group: str) -> bool | None:
    opening = _OPEN.match(group)
    assert opening is not None
    if group[opening.end()] == "?":  # unsupported kind of group
        return None
    parts = [_has_unlimited_repeat(part) for part in _alternatives(group[opening.end() : -1])]
    is_lookaround = opening[0].endswith(("=", "!"))
    return None if None in parts or (is_lookaround and any(parts)) else any(parts)


def _repeat_range(repeat: re.Match[str] | None) -> tuple[int, float]:
    """Return the (min, max) count of a repetition."""
    if repeat is None:
        return 1, 1
    if repeat[1] in ("*", "+", "?"):
        return (1 if repeat[1] == "+" else 0), (1 if repeat[1] == "?" else math.inf)
    low = int(repeat[2] or 0)
    high = math.inf if repeat[3] and not repeat[4] else int(repeat[4] or low)
    return low, math.inf if high > MAX_COMBINATIONS else high
