"""Choosing one of several texts (BERT 1810.04805 §4.4, RACE 1704.04683): a number for each, a softmax over those of one question.

| record | rows: one for each choice | label |
|---|---|---|
| {"text", "choices": […], "label"} | [CLS] text [SEP] choice [SEP] | index of the right one |
| the same with "context" | [CLS] context [SEP] text choice [SEP] | |

Records may differ in how many choices they have; the rows of one stay in one batch (`Example.grouped_rows`). In a row that is too long, the
longer part loses its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unmask.batch import Example
from unmask.labels.records import Record
from unmask.model.config import ModelConfig
from unmask.recipe import TaskRecipe
from unmask.tasks.choose.spec import SPEC
from unmask.tasks.details import errors_and_examples
from unmask.tasks.metrics import ranks
from unmask.tasks.spec import TaskSpec
from unmask.tasks.task import Outputs, Prediction, Task
from unmask.text.windows import truncate_pair


class Choose(Task):
    SPEC = SPEC

    @classmethod
    def make_spec(cls, settings: TaskRecipe, task_state: Mapping[str, Any], config: ModelConfig | None) -> TaskSpec:
        return cls.SPEC.bind(
            num_inputs=(1, None), input_description='a text and two choices or more: "2 + 2 =" "4" "5"', text_pairs=True
        )

    def encode(self, record: Record, labelled: bool = True) -> list[Example]:
        """A row for each choice; with a label, one example that holds them all."""
        t, room = self.tokenizer, self.windowing.max_text_tokens(pair=True)
        text, context = record["text"], record.get("context")
        rows = [(text, c) if context is None else (context, f"{text} {c}") for c in record["choices"]]
        first, *others = [e.ids for e in t.encode_batch([rows[0][0], *(second for _, second in rows)])]
        self.windowing.check_overflow(record, [len(first) + max(map(len, others))], room)
        pairs = [t.build_inputs_with_special_tokens(*truncate_pair(first, b, room)) for b in others]
        examples = [
            Example(np.array(ids), np.array(segments), texts=texts, metadata=choice)
            for (ids, segments), texts, choice in zip(pairs, rows, record["choices"])
        ]
        if not labelled:
            return examples
        head, *more = examples
        head.labels, head.grouped_rows = {"choose.targets": np.array([record["label"]])}, more
        return [head]

    # ----------------------------------------------------------------------------------------------- answers

    def decode(self, outputs: Outputs) -> list[Prediction]:
        predictions: list[Prediction] = []
        logits = np.array([float(value) for value in outputs.values])
        counts = np.bincount(outputs.record_index)
        for first, count in zip(np.cumsum(counts) - counts, counts):
            part = logits[first : first + count]
            shares = np.exp(part - part.max())
            shares /= shares.sum()
            best = int(part.argmax())
            text = outputs.examples[first + best].metadata
            predictions.append(
                {"answer": text, "choice": best, "probability": float(shares[best]), "scores": shares.tolist()}
            )
        return predictions

    def score(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        """`mean_rank`: the place of the right choice, 1 = first; equal ones share the middle of their places."""
        right = [a["choice"] == r["label"] for a, r in zip(predictions, records, strict=True)]
        places = [float(ranks(np.negative(a["scores"]))[r["label"]]) for a, r in zip(predictions, records)]
        return {"accuracy": sum(right) / max(1, len(right)), "mean_rank": sum(places) / max(1, len(places))}

    def details(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, Any]:
        expected = [r["choices"][r["label"]] for r in records]
        wrong = np.array([a["choice"] != r["label"] for a, r in zip(predictions, records)], bool)
        sure = np.array([a["probability"] for a in predictions])
        return errors_and_examples(records, expected, [a["answer"] for a in predictions], wrong, sure)
