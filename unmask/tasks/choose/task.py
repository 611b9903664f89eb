"""Multiple choice (BERT 1810.04805 §4.4, RACE 1704.04683): a score for each choice, and a softmax over the choices of a record.

| record | rows: one for each choice | label |
|---|---|---|
| {"text", "choices": […], "label"} | [CLS] text [SEP] choice [SEP] | index of the correct choice |
| the same with "context" | [CLS] context [SEP] text choice [SEP] | |

The number of choices may differ between records. The rows of a record stay in one batch (`Example.grouped_rows`). If a row is too long,
the longer part is truncated at its end.
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

    def encode(self, record: Record, labeled: bool = True) -> list[Example]:
        """Return a row for each choice, or if `labeled` one example that contains them all."""
        t, max_tokens = self.tokenizer, self.windowing.max_text_tokens(pair=True)
        text, context = record["text"], record.get("context")
        rows = [(text, c) if context is None else (context, f"{text} {c}") for c in record["choices"]]
        first, *seconds = [e.ids for e in t.encode_batch([rows[0][0], *(second for _, second in rows)])]
        self.windowing.check_overflow(record, [len(first) + max(map(len, seconds))], max_tokens)
        pairs = [t.build_inputs_with_special_tokens(*truncate_pair(first, second, max_tokens)) for second in seconds]
        examples = [
            Example(np.array(ids), np.array(segments), texts=texts, metadata=choice)
            for (ids, segments), texts, choice in zip(pairs, rows, record["choices"])
        ]
        if not labeled:
            return examples
        example, *others = examples
        example.labels, example.grouped_rows = {"choose.targets": np.array([record["label"]])}, others
        return [example]

    # ------------------------------------------------------------------------------------------- predictions

    def decode(self, outputs: Outputs) -> list[Prediction]:
        predictions: list[Prediction] = []
        logits = np.array([float(value) for value in outputs.values])
        counts = np.bincount(outputs.record_index)
        for first, count in zip(np.cumsum(counts) - counts, counts):
            choice_logits = logits[first : first + count]
            p = np.exp(choice_logits - choice_logits.max())
            p /= p.sum()
            best = int(choice_logits.argmax())
            text = outputs.examples[first + best].metadata
            predictions.append({"answer": text, "choice": best, "probability": float(p[best]), "scores": p.tolist()})
        return predictions

    def score(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        """Return accuracy, and the mean rank of the correct choice (1 = first; ties get the mean of their ranks)."""
        n = max(1, len(records))
        num_correct = sum(p["choice"] == r["label"] for p, r in zip(predictions, records, strict=True))
        correct_ranks = [float(ranks(np.negative(p["scores"]))[r["label"]]) for p, r in zip(predictions, records)]
        return {"accuracy": num_correct / n, "mean_rank": sum(correct_ranks) / n}

    def details(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, Any]:
        expected = [r["choices"][r["label"]] for r in records]
        wrong = np.array([p["choice"] != r["label"] for p, r in zip(predictions, records)], bool)
        confidence = np.array([p["probability"] for p in predictions])
        return errors_and_examples(records, expected, [p["answer"] for p in predictions], wrong, confidence)
