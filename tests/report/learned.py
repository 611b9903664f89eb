"""Folders of `learn` runs, written without training, for tests of their reports."""

from pathlib import Path
from typing import Any

from unmask.recipe import Recipe
from unmask.train.run import Run

TEXTS = [
    "I expected more from this director, but the second half almost saves it.",
    "Not bad at all, though I would not watch it twice.",
    "The trailer is better than the film. The film is better than its sequel, and its sequel is better than nothing.",
]
STEPS = [
    {"name": "TF-IDF + logistic regression", "split": "test", "score": 0.723, "low": 0.703, "high": 0.742, "seconds": 3.1, "note": "labels alone"},
    {"name": "TF-IDF + self-training", "split": "test", "score": 0.791, "low": 0.773, "high": 0.808, "seconds": 41.0, "note": "8,000 unlabeled texts"},
    {"name": "fine-tuned modernbert-mini", "split": "test", "score": 0.768, "low": 0.749, "high": 0.786, "seconds": 260.4, "note": "pre-trained on the unlabeled texts"},
    {"name": "blend of encoder and linear model", "split": "test", "score": 0.812, "low": 0.794, "high": 0.829, "seconds": 2.0, "note": "the final model"},
]  # fmt: skip
CURVE = {
    "points": [
        {"labels": n, "score": s, "sd": d} for n, s, d in ((10, 0.61, 0.05), (20, 0.68, 0.04), (40, 0.745, 0.03), (80, 0.785, 0.025))
    ],
    "now": {"labels": 100, "score": 0.795, "low": 0.77, "high": 0.82},
    "predicted": [
        {"labels": 200, "score": 0.831, "low": 0.809, "high": 0.852},
        {"labels": 400, "score": 0.85, "low": 0.82, "high": 0.88},
    ],
    "fitted": [
        {"labels": n, "score": 0.9 - 0.9 * n**-0.5, "low": 0.87 - 0.9 * n**-0.5, "high": 0.93 - 0.9 * n**-0.5} for n in range(10, 401, 30)
    ],
    "level": 0.8,
    "note": "",
}  # fmt: skip
RESULTS: dict[str, Any] = {
    "metric": "accuracy",
    "labels": ["negative", "positive"],
    "model": "runs/learn/reviews-1/model",
    "counts": {"labeled": 100, "unlabeled": 8000, "test": 2000},
    "steps": STEPS,
    "curve": CURVE,
    "to_label": {
        "file": "to_label.csv",
        "texts": [
            {"text": f"{TEXTS[n % 3]} ({n})", "suggested": ("negative", "positive")[n % 2], "probability": 0.5 + n / 500}
            for n in range(50)
        ],
    },
    "suspects": {
        "file": "suspicious_labels.csv",
        "records": [
            {"location": "train.csv:12", "text": "A wonderful film.", "label": "negative", "suggested": "positive", "probability": 0.97},
            {"location": "train.csv:40", "text": TEXTS[0], "label": "positive", "suggested": "negative", "probability": 0.83},
        ],
    },
    "copies": [
        {"name": "model", "path": "runs/learn/reviews-1/model", "megabytes": 22.5, "score": 0.812, "texts_per_second": 310},
        {"name": "static", "path": "runs/learn/reviews-1/static", "megabytes": 4.1, "score": 0.79, "texts_per_second": 20000},
    ],
    "commands": [
        "unmask label runs/learn/reviews-1/to_label.csv",
        "unmask learn train.csv runs/learn/reviews-1/to_label.csv --unlabeled reviews.txt",
        'unmask predict runs/learn/reviews-1/model "TEXT"',
    ],
    "seconds": 412.0,
}  # fmt: skip


def make(path: Path, results: Any = RESULTS) -> Run:
    run = Run.create(path, "learn", "x")
    run.write_kind("learn")
    Recipe.build({"task": {"name": "classify", "train": ["train.csv"]}}).write(run.path / "recipe.yaml")
    run.write_json("environment.json", {"cpu": "Test CPU", "threads": 1})
    if results is not None:
        run.write_json("results.json", results)
    return run
