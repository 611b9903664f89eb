"""Tolerances that hold on every CPU: relative to the magnitude of the compared values, and at least as large as for the value 1.

Kernels add in different orders (AVX-512, AVX2, one thread or two), so float32 results differ by a few units in the last
place *of the largest number involved*. A fixed absolute tolerance passes for values near 1 and fails for hidden states near 20.

>>> gap([20.00004, 1.0], [20.0, 1.0]) < 1e-5
True
>>> [20.00004] == near([20.0], 1e-5), [1.00004] == near([1.0], 1e-5)
(True, False)
"""

from typing import Any

import numpy as np
import pytest
import torch


def near(expected: Any, tolerance: float) -> Any:
    """`actual == near(expected, 1e-5)` compares numbers, lists and dicts, each number within tolerance × max(1, its magnitude)."""
    return pytest.approx(expected, rel=tolerance, abs=tolerance)


def gap(actual: Any, expected: Any) -> float:
    """Return the largest difference of two arrays of equal shape, relative to the largest magnitude in `expected` (at least 1)."""
    a, b = (_array(actual), _array(expected))
    assert a.shape == b.shape or b.ndim == 0, f"shapes differ: {a.shape} and {b.shape}"
    assert np.isfinite(a).all() and np.isfinite(b).all(), "not finite"
    return float(np.abs(a - b).max(initial=0.0) / max(1.0, np.abs(b).max(initial=0.0)))


def _array(value: Any) -> np.ndarray:
    return np.asarray(value.detach().cpu() if isinstance(value, torch.Tensor) else value, dtype=np.float64)
