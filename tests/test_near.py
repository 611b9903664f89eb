"""Tolerances are relative to the magnitude of the compared values; see near.py."""

import re
from pathlib import Path

import numpy as np
import pytest
from near import gap, near

# Patterns of absolute tolerances, which pass for values near 1 on one CPU and fail for values near 20 on another.
ABSOLUTE = {
    r"assert_(allclose|close)\((?!.*rtol=[1-9]).*atol=": "assert gap(found, expected) <= tolerance",
    r"\ballclose\((?!.*rtol=[1-9]).*atol=": "assert gap(found, expected) <= tolerance",
    r"\.abs\(\)\.max\(\)\)? *<=? *\d[\d.]*e-": "assert gap(found, expected) <= tolerance",
    r"approx\(.*abs=[\d.]+e-0?[3-7]\b": "found == near(expected, tolerance)",
}
EXACT = {"0.0707"}  # a number written with this precision


def test_tolerance_grows_with_magnitude() -> None:
    states = np.linspace(-21, 21, 300).reshape(10, 30)
    assert gap(states + 3.8e-5, states) <= 1e-5  # the difference on an AMD CPU for ModernBERT
    assert gap(states + 3.8e-4, states) > 1e-5
    assert near(21, 3e-5) == 21.00003 and near(1, 3e-5) != 1.00006 and near(0, 3e-5) != 0.00006


def test_different_shapes_and_nan_raise() -> None:
    with pytest.raises(AssertionError, match="shapes"):
        gap(np.zeros((2, 3)), np.zeros(3))
    with pytest.raises(AssertionError, match="finite"):
        gap([1.0, float("nan")], [1.0, 1.0])


def test_no_test_uses_an_absolute_tolerance() -> None:
    lines_found = []
    for path in Path(__file__).parent.rglob("*.py"):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if path.name != Path(__file__).name and not any(number_text in line for number_text in EXACT):
                lines_found += [
                    f"{path.name}:{number}: write {hint}"
                    for pattern, hint in ABSOLUTE.items()
                    if re.search(pattern, line)
                ]
    assert not lines_found, "\n".join(lines_found)
