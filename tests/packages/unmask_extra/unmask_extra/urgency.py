"""Classify a message as urgent or later. The task uses the head of `classify` and has its own setting
(`task.urgency.threshold`)."""

from collections.abc import Sequence

import numpy as np

from unmask.batch import Example
from unmask.json_checks import STRING, list_of
from unmask.labels.data_format import DataFormat
from unmask.labels.fields import Field
from unmask.labels.records import Record
from unmask.settings import Fraction, Section, setting
from unmask.tasks.spec import TaskSpec, Training
from unmask.tasks.task import Outputs, Prediction, Task

LABELS = ("later", "urgent")


class UrgencySettings(Section):
    threshold: Fraction = setting(0.5, "Probability from which a message is urgent.")


class Urgency(Task):
    SPEC = TaskSpec(
        name="urgency",
        about="a message → urgent or later",
        data_format=DataFormat(
            Field("message", ("message",)), Field("urgency", ("urgency",), "label", "target", labels=LABELS)
        ),
        heads=("classify",),
        terms=("urgency",),
        output="choice",
        required_state={"labels": list_of(STRING)},
        settings=UrgencySettings,
        baseline="unmask_extra.urgency:baseline",
        training=Training(aux_mlm=True, token_masking=True, augmentable_fields=("message",)),
    )

    def encode(self, record: Record, labeled: bool = True) -> list[Example]:
        ids, segments = self.tokenizer.build_inputs_with_special_tokens(
            self.tokenizer.encode(record["message"])[: self.windowing.max_text_tokens()]
        )
        labels = {"urgency.targets": np.array([LABELS.index(record["urgency"])])} if labeled else {}
        return [Example(np.array(ids), np.array(segments), labels=labels, texts=(record["message"],))]

    def decode(self, outputs: Outputs) -> list[Prediction]:
        scores = [float(1 / (1 + np.exp(later - urgent))) for later, urgent in outputs.values]
        return [{"urgency": LABELS[int(p >= self.settings.urgency.threshold)], "probability": p} for p in scores]

    def score(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        return {"accuracy": float(np.mean([a["urgency"] == r["urgency"] for a, r in zip(predictions, records)]))}


def baseline(
    task: Task, train: Sequence[Record], dev: Sequence[Record], evaluated: Sequence[Record]
) -> dict[str, dict[str, float]]:
    """Predict urgent if a message shares more words with urgent messages than with the others."""
    words = {label: {w for r in train if r["urgency"] == label for w in r["message"].split()} for label in LABELS}
    predicted = [max(LABELS, key=lambda label: len(words[label] & set(r["message"].split()))) for r in evaluated]
    return {"shared words": task.score([{"urgency": label} for label in predicted], evaluated)}
