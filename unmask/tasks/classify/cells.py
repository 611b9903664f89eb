"""What the labels of a classifier's file are: one label per record, several, or a number; and how a cell is read as that."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from unmask.errors import UserError
from unmask.labels.records import MISSING_VALUES, Finding, Record, parse_text

SEPARATORS = ("|", ";", ",")
_WHOLE = re.compile(r"^(-?\d+)\.0+$")
MANY = 10  # more different values than that, some of them no whole numbers, are numbers rather than names
LISTED = 0.5  # share of them with a part that is a cell of its own: then they may be lists
NONE_APPLIES = "if an empty cell means that no label applies: --set task.classify.problem_type=multi_label"
REUSED = 0.9  # share of the cells with a separator whose parts also stand in another cell


def as_number(value: Any) -> float | None:
    """
    >>> as_number("2.5"), as_number(3), as_number("1,5"), as_number("nan"), as_number(True)
    (2.5, 3.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in str(value) else None


def is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def is_empty(value: Any) -> bool:
    return value is None or value != value or (isinstance(value, str) and value.strip().lower() in MISSING_VALUES)


def resolve_auto(values: Sequence[Any], target: str, separator: str) -> tuple[str, str]:
    """(target, separator) of a label column, where they are `auto`. Only what is plain to see is taken.

    >>> resolve_auto([["a"], []], "auto", "auto"), resolve_auto(["a|b", "a", "b|c", "c"], "auto", "auto")
    (('several', 'none'), ('several', '|'))
    >>> resolve_auto(["rock|pop", "jazz|blues"], "auto", "auto"), resolve_auto([i / 7 for i in range(50)], "auto", "auto")
    (('one', 'none'), ('number', 'none'))
    """
    if not separator:  # YAML's own `|` gives nothing
        raise UserError(
            "task.classify.label_separator is empty",
            expected="; , | or another text",
            hint="""--set "task.classify.label_separator='|'\"""",
        )
    filled = [v for v in values if not is_empty(v)]
    texts = [str(v) for v in filled if not is_list(v)]
    fitting = [s for s in SEPARATORS if parts_recur(texts, s)]
    if target == "auto":
        if any(map(is_list, filled)) or (len(fitting) == 1 and not (texts and all(map(is_decimal, texts)))):
            target = "multi_label"
        else:
            target = "regression" if are_numbers(filled) else "single_label"
    if target != "multi_label":
        return target, "none"
    if separator == "auto":
        used = [s for s in SEPARATORS if any(s in text for text in texts)]
        separator = fitting[0] if len(fitting) == 1 else used[0] if used else "none"
    return target, separator


def parts_recur(texts: Iterable[str], separator: str) -> bool:
    """Whether what stands between separators are labels of their own: they occur alone, or with others, elsewhere."""
    cells = {frozenset(split_labels(text, separator)) for text in texts}
    joined = [cell for cell in cells if len(cell) > 1]
    found = Counter(label for cell in cells for label in cell)
    return bool(joined) and sum(all(found[label] > 1 for label in cell) for cell in joined) >= REUSED * len(joined)


def are_numbers(values: Sequence[Any]) -> bool:
    numbers = [as_number(v) for v in values]
    found = {n for n in numbers if n is not None}
    return None not in numbers and len(found) > MANY and any(n != int(n) for n in found)


def is_decimal(text: str) -> bool:
    """Whether it is one number with a comma in it, as many countries write them."""
    return as_number(text.replace(",", ".", 1)) is not None


def split_labels(text: str, separator: str) -> list[str]:
    """
    >>> split_labels("b| a |b", "|"), split_labels("", "|"), split_labels("a b", "none")
    (['b', 'a'], [], ['a b'])
    """
    found = [text] if separator == "none" else text.split(separator)
    return list(dict.fromkeys(part.strip() for part in found if part.strip()))


def parse_cell(value: Any, target: str, separator: str, at: str, findings: list[Finding]) -> Any:
    """A cell → a label, a list of labels (an empty one is allowed), or a number."""
    if target == "regression":
        number = as_number(value)
        if number is None:
            what = "no label" if is_empty(value) else f"label is no number: {value!r:.40}"
            findings.append(Finding(at, what, "write 1.5, or remove the row", kind="no number"))
        return 0.0 if number is None else number
    if target == "multi_label":
        if is_list(value):
            return list(dict.fromkeys(parse_text(v, at, "label", findings) for v in value))
        if isinstance(value, str) and not value.strip():
            return []
        text = parse_text(value, at, "label", findings)
        return split_labels(text, separator)
    if is_list(value):
        what = f"{len(value)} labels where every record should have one"
        findings.append(
            Finding(at, what, "one label, or --set task.classify.problem_type=multi_label", kind="several labels")
        )
        return ""
    if is_empty(value) and not (isinstance(value, str) and value.strip()):  # "none" may be a label: the doctor warns
        findings.append(Finding(at, "no label", f"fill it in, or remove the row; {NONE_APPLIES}", kind="no label"))
        return ""
    return strip_decimals(parse_text(value, at, "label", findings).strip())


def strip_decimals(label: str) -> str:
    """A label without the decimals that a program wrote after a whole number: 1.0 is 1, whatever wrote it.

    >>> strip_decimals("1.0"), strip_decimals("-2.00"), strip_decimals("1.5"), strip_decimals("v1.0")
    ('1', '-2', '1.5', 'v1.0')
    """
    return _WHOLE.sub(r"\1", label)


def numeric_label_findings(cells: Sequence[tuple[str, Any]]) -> list[Finding]:
    """Warnings about labels that are numbers: read alike (1 and 1.0), or scores that may be meant to be predicted.

    >>> [f.what for f in numeric_label_findings([("a.csv:2", "0.5"), ("a.csv:3", "5.0"), ("a.csv:4", "0.5")])]
    ["the labels are numbers, some of them no whole ones: read as 2 labels ('0.5', '5')"]
    """
    texts = [(at, str(value).strip()) for at, value in cells if not is_empty(value) and not is_list(value)]
    decimal = [(at, text) for at, text in texts if strip_decimals(text) != text]
    plain = {text for _, text in texts}
    found = []
    if alike := next(((at, text) for at, text in decimal if strip_decimals(text) in plain), None):
        what = (
            f"the label {alike[1]!r} is read as {strip_decimals(alike[1])!r}, as it is written elsewhere in the column"
        )
        found.append(Finding(alike[0], what, error=False, kind="labels alike"))
    labels = sorted({strip_decimals(text) for text in plain}, key=lambda text: as_number(text) or 0)
    numbers = [as_number(label) for label in labels]
    if texts and None not in numbers and any(number != int(number) for number in numbers if number is not None):
        listed = ", ".join(map(repr, labels[:4])) + (", …" if len(labels) > 4 else "")
        what = f"the labels are numbers, some of them no whole ones: read as {len(labels)} labels ({listed})"
        hint = "if they are scores to predict: --set task.classify.problem_type=regression"
        found.append(Finding(texts[0][0], what, hint, error=False, kind="numbers as labels"))
    return found


def unsplit_label_findings(cells: Sequence[tuple[str, Any]]) -> list[Finding]:
    """A warning where labels, each read as one, look like lists: what stands between separators is a label elsewhere.

    >>> [f.what for f in unsplit_label_findings([("a.csv:2", "rock,live"), ("a.csv:3", "rock"), ("a.csv:4", "pop, live")])]
    ["the label 'rock,live' looks like several: 'rock' is one by itself elsewhere"]
    >>> unsplit_label_findings([("a.csv:2", "Paris, France"), ("a.csv:3", "Lyon, France"), ("a.csv:4", "1,5")])
    []
    """
    texts = {str(value).strip(): at for at, value in reversed(cells) if not is_empty(value) and not is_list(value)}
    for separator in SEPARATORS:
        joined = [text for text in texts if len(split_labels(text, separator)) > 1 and not is_decimal(text)]
        known = {
            text: next((p for p in split_labels(text, separator) if p in texts), None) for text in reversed(joined)
        }
        hits = [text for text, part in known.items() if part]
        if hits and len(hits) >= LISTED * len(joined):
            what = f"the label {hits[0]!r:.60} looks like several: {known[hits[0]]!r:.40} is one by itself elsewhere"
            hint = f"""--set task.classify.problem_type=multi_label --set "task.classify.label_separator='{separator}'" reads it so"""
            return [Finding(texts[hits[0]], what, hint, error=False, kind="several labels")]
    return []


def infer_problem_type(records: Sequence[Record]) -> str:
    """The target of records that come from no file.

    >>> infer_problem_type([{"label": 0.5}]), infer_problem_type([{"label": ["a"]}]), infer_problem_type([{"label": "a"}])
    ('number', 'several', 'one')
    """
    first = records[0]["label"]
    return "multi_label" if is_list(first) else "regression" if isinstance(first, float) else "single_label"
