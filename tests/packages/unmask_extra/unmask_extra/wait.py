"""Predict from a sender and a message the hours until it must be read. The task has its own head and metric."""

from collections.abc import Sequence

import numpy as np

from unmask.batch import Example
from unmask.labels.data_format import DataFormat
from unmask.labels.fields import Field
from unmask.labels.records import Record
from unmask.metrics import Metric
from unmask.model.head_spec import HeadSpec
from unmask.tasks.spec import TaskSpec, Training
from unmask.tasks.task import Outputs, Prediction, Task
from unmask.text.windows import truncate_pair

DIAL = HeadSpec("unmask_extra.dial:Dial", reads="row")
WITHIN = Metric("within", 0, 1, percent=True, is_per_record=True, title="within an hour")


class Wait(Task):
    SPEC = TaskSpec(
        name="wait",
        about="a sender and a message → hours",
        data_format=DataFormat(
            Field("sender", ("sender",)),
            Field("message", ("message",)),
            Field("hours", ("hours",), "number", "target"),
        ),
        heads=("dial",),
        terms=("wait",),
        output="number",
        metrics=("within",),
        training=Training(aux_mlm=True),
    )

    def encode(self, record: Record, labeled: bool = True) -> list[Example]:
        t, texts = self.tokenizer, (record["sender"], record["message"])
        ids, segments = t.build_inputs_with_special_tokens(
            *truncate_pair(t.encode(texts[0]), t.encode(texts[1]), self.windowing.max_text_tokens(pair=True))
        )
        labels = {"wait.targets": np.array([record["hours"]], np.float32)} if labeled else {}
        return [Example(np.array(ids), np.array(segments), labels=labels, texts=texts)]

    def decode(self, outputs: Outputs) -> list[Prediction]:
        return [{"hours": float(hours)} for (hours,) in outputs.values]

    def score(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        off = np.array([abs(a["hours"] - r["hours"]) for a, r in zip(predictions, records)])
        return {"within": float((off <= 1).mean()), "mae": float(off.mean())}
