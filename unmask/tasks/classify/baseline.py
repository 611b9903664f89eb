"""Baseline of `classify`: TF-IDF features and a linear model."""

from unmask.tasks.classify.linear import LinearModel, uncalibrated
from unmask.tasks.classify.task import Classify
from unmask.tasks.task import Records


def baseline(task: Classify, train: Records, dev: Records, eval_records: Records) -> dict[str, dict[str, float]]:
    task_state = uncalibrated(task.task_state)  # the linear model is calibrated by itself
    model, target_type = LinearModel.fit(task_state, train), type(task.target_type)(task_state)
    if dev:
        task_state |= target_type.calibrate(model.logits(dev), dev)
    return {"TF-IDF + linear": target_type.score(target_type.decode(model.logits(eval_records)), eval_records)}
