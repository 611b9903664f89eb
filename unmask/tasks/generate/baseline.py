"""First N sentences of the text; N = sentences of the targets (median)."""

from collections.abc import Sequence
from statistics import median

from unmask.labels.records import Record
from unmask.tasks.task import Task
from unmask.text.segmentation import sentences


def baseline(
    task: Task, train: Sequence[Record], dev: Sequence[Record], judged: Sequence[Record]
) -> dict[str, dict[str, float]]:
    count = max(1, round(median(len(sentences(r["target"])) for r in train)))
    answers = [{"output": " ".join(sentences(r["text"])[:count])} for r in judged]
    return {"first sentence" if count == 1 else f"first {count} sentences": task.score(answers, judged)}
