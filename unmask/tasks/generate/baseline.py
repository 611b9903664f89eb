"""Baseline of `generate`: the first N sentences of the text, where N is the median number of sentences of the targets."""

from statistics import median

from unmask.tasks.task import Records, Task
from unmask.text.segmentation import sentences


def baseline(task: Task, train: Records, dev: Records, test: Records) -> dict[str, dict[str, float]]:
    count = max(1, round(median(len(sentences(r["target"])) for r in train)))
    predictions = [{"output": " ".join(sentences(r["text"])[:count])} for r in test]
    return {"first sentence" if count == 1 else f"first {count} sentences": task.score(predictions, test)}
