"""Label cells of a classification file: detect the problem type of a column, and parse its cells.

A column holds one label per record (single_label), a list of labels (multi_label), or a number (regression).
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from unmask.errors import UserError
from unmask.labels.records import MISSING_VALUES, Finding, Record, parse_text

SEPARATORS = ("|", ";", ",")
MAX_NUMERIC_CLASSES = 10  # a column with more distinct values, not all of them integers, is a regression target
MIN_RECURRING_FRACTION = 0.9  # minimum fraction of the cells with a separator whose parts all occur in other cells too
MIN_SUSPECT_FRACTION = 0.5  # warn if this fraction of the cells with a separator have a part that is also a whole cell
_INTEGRAL = re.compile(r"^(-?\d+)\.0+$")


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


def resolve_auto(values: Sequence[Any], problem_type: str, separator: str) -> tuple[str, str]:
    """Return (problem type, separator) of a label column, detecting those that are `auto`.

    The detection is conservative: an ambiguous column has one label per record.

    >>> resolve_auto([["a"], []], "auto", "auto"), resolve_auto(["a|b", "a", "b|c", "c"], "auto", "auto")
    (('multi_label', 'none'), ('multi_label', '|'))
    >>> resolve_auto(["rock|pop", "jazz|blues"], "auto", "auto"), resolve_auto([i / 7 for i in range(50)], "auto", "auto")
    (('single_label', 'none'), ('regression', 'none'))
    """
    if not separator:  # an unquoted | is an empty block scalar in YAML
        raise UserError(
            "task.classify.label_separator is empty",
            expected="; , | or another text",
            hint="""--set "task.classify.label_separator='|'\"""",
        )
    filled = [v for v in values if not is_empty(v)]
    texts = [str(v) for v in filled if not is_list(v)]
    likely = [s for s in SEPARATORS if parts_recur(texts, s)]
    if problem_type == "auto":
        if any(map(is_list, filled)) or (len(likely) == 1 and not (texts and all(map(is_numeric, texts)))):
            problem_type = "multi_label"
        else:
            problem_type = "regression" if looks_like_regression(filled) else "single_label"
    if problem_type != "multi_label":
        return problem_type, "none"
    if separator == "auto":
        used = [s for s in SEPARATORS if any(s in text for text in texts)]
        separator = likely[0] if len(likely) == 1 else used[0] if used else "none"
    return problem_type, separator


def parts_recur(texts: Iterable[str], separator: str) -> bool:
    """Return whether the parts between separators are labels: each occurs in other cells too, alone or combined."""
    cells = {frozenset(split_labels(text, separator)) for text in texts}
    joined = [cell for cell in cells if len(cell) > 1]
    counts = Counter(label for cell in cells for label in cell)
    recurring = sum(all(counts[label] > 1 for label in cell) for cell in joined)
    return bool(joined) and recurring >= MIN_RECURRING_FRACTION * len(joined)


def looks_like_regression(values: Sequence[Any]) -> bool:
    numbers = [as_number(v) for v in values]
    distinct = {n for n in numbers if n is not None}
    return None not in numbers and len(distinct) > MAX_NUMERIC_CLASSES and any(n != int(n) for n in distinct)


def is_numeric(text: str) -> bool:
    """Return whether the text is one number, possibly with a decimal comma (1,5)."""
    return as_number(text.replace(",", ".", 1)) is not None


def split_labels(text: str, separator: str) -> list[str]:
    """
    >>> split_labels("b| a |b", "|"), split_labels("", "|"), split_labels("a b", "none")
    (['b', 'a'], [], ['a b'])
    """
    parts = [text] if separator == "none" else text.split(separator)
    return list(dict.fromkeys(part.strip() for part in parts if part.strip()))


def parse_cell(value: Any, problem_type: str, separator: str, location: str, findings: list[Finding]) -> Any:
    """Return a label, a list of labels (which may be empty), or a number. Problems are added to `findings`."""
    if problem_type == "regression":
        number = as_number(value)
        if number is None:
            message = "no label" if is_empty(value) else f"the label {value!r:.40} is not a number"
            findings.append(Finding(location, message, "write a number (1.5), or remove the row", kind="no number"))
        return 0.0 if number is None else number
    if problem_type == "multi_label":
        if is_list(value):
            return list(dict.fromkeys(parse_text(v, location, "label", findings) for v in value))
        if isinstance(value, str) and not value.strip():
            return []
        return split_labels(parse_text(value, location, "label", findings), separator)
    if is_list(value):
        message = f"{len(value)} labels, but every record should have one"
        hint = "keep one label, or use --set task.classify.problem_type=multi_label"
        findings.append(Finding(location, message, hint, kind="several labels"))
        return ""
    if is_empty(value) and not (isinstance(value, str) and value.strip()):  # "none" may be a label: the doctor warns
        hint = (
            "fill it in, or remove the row; "
            "if an empty cell means that no label applies: --set task.classify.problem_type=multi_label"
        )
        findings.append(Finding(location, "no label", hint, kind="no label"))
        return ""
    return strip_decimals(parse_text(value, location, "label", findings).strip())


def strip_decimals(label: str) -> str:
    """Remove zero decimals: some programs write the class 1 as 1.0.

    >>> strip_decimals("1.0"), strip_decimals("-2.00"), strip_decimals("1.5"), strip_decimals("v1.0")
    ('1', '-2', '1.5', 'v1.0')
    """
    return _INTEGRAL.sub(r"\1", label)


def numeric_label_findings(cells: Sequence[tuple[str, Any]]) -> list[Finding]:
    """Warn about numeric labels: two spellings of one label (1 and 1.0), or decimals that may be scores to predict.

    `cells`: (location, value).

    >>> [f.message for f in numeric_label_findings([("a.csv:2", "0.5"), ("a.csv:3", "5.0"), ("a.csv:4", "0.5")])]
    ["the labels are numbers with decimals, read as 2 labels ('0.5', '5')"]
    """
    texts = [(location, str(value).strip()) for location, value in cells if not is_empty(value) and not is_list(value)]
    distinct = {text for _, text in texts}
    findings = []
    for location, text in texts:
        stripped = strip_decimals(text)
        if stripped != text and stripped in distinct:
            message = f"the label {text!r} is read as {stripped!r}, because other rows have the label {stripped!r}"
            findings.append(Finding(location, message, error=False, kind="labels alike"))
            break
    labels = sorted({strip_decimals(text) for text in distinct}, key=lambda text: as_number(text) or 0)
    numbers = [as_number(label) for label in labels]
    if texts and None not in numbers and any(number != int(number) for number in numbers if number is not None):
        listed = ", ".join(map(repr, labels[:4])) + (", …" if len(labels) > 4 else "")
        message = f"the labels are numbers with decimals, read as {len(labels)} labels ({listed})"
        hint = "if they are scores to predict: --set task.classify.problem_type=regression"
        findings.append(Finding(texts[0][0], message, hint, error=False, kind="numbers as labels"))
    return findings


def unsplit_label_findings(cells: Sequence[tuple[str, Any]]) -> list[Finding]:
    """Warn if labels look like lists: a part between separators is itself a label in another row.

    `cells`: (location, value).

    >>> [f.message for f in unsplit_label_findings([("a.csv:2", "rock,live"), ("a.csv:3", "rock"), ("a.csv:4", "pop, live")])]
    ["the label 'rock,live' looks like several labels: 'rock' is a label by itself in another row"]
    >>> unsplit_label_findings([("a.csv:2", "Paris, France"), ("a.csv:3", "Lyon, France"), ("a.csv:4", "1,5")])
    []
    """
    # In reverse, so that a text has the location of its first row.
    texts = {
        str(value).strip(): location
        for location, value in reversed(cells)
        if not is_empty(value) and not is_list(value)
    }
    for separator in SEPARATORS:
        joined = [text for text in texts if len(split_labels(text, separator)) > 1 and not is_numeric(text)]
        known_part = {
            text: next((p for p in split_labels(text, separator) if p in texts), None) for text in reversed(joined)
        }
        suspects = [text for text, part in known_part.items() if part]
        if suspects and len(suspects) >= MIN_SUSPECT_FRACTION * len(joined):
            text = suspects[0]
            message = f"the label {text!r:.60} looks like several labels: {known_part[text]!r:.40} is a label by itself in another row"
            hint = f"""to split it: --set task.classify.problem_type=multi_label --set "task.classify.label_separator='{separator}'\""""
            return [Finding(texts[text], message, hint, error=False, kind="several labels")]
    return []


def infer_problem_type(records: Sequence[Record]) -> str:
    """Return the problem type of records that were passed from Python, not read from a file.

    >>> infer_problem_type([{"label": 0.5}]), infer_problem_type([{"label": ["a"]}]), infer_problem_type([{"label": "a"}])
    ('regression', 'multi_label', 'single_label')
    """
    first = records[0]["label"]
    return "multi_label" if is_list(first) else "regression" if isinstance(first, float) else "single_label"
