"""Classification of a text or a pair of texts (BERT 1810.04805 §4.1): one linear layer on the pooled vector.

| record                                  | sequence                  | target (targets.py)                    |
|-----------------------------------------|---------------------------|----------------------------------------|
| {"text": "what a film", "label": "pos"} | [CLS] what a film [SEP]   | single_label: index of "pos"           |
| {"text": "a", "pair": "b", "label": …}  | [CLS] a [SEP] b [SEP]     |                                        |
| {"text": "…", "label": ["a", "b"]}      |                           | multi_label: 0 or 1 for each label     |
| {"text": "…", "label": 3.5}             |                           | regression: the number                 |

`task.overflow` decides about a text that is too long: it is split into windows whose logits are averaged (`window`), cut
at the end (`truncate`), or rejected (`error`). Pairs are always cut or rejected.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from unmask.batch import Example
from unmask.labels.fields import Field
from unmask.labels.records import Record
from unmask.model.config import ModelConfig
from unmask.recipe import Recipe, TaskRecipe
from unmask.tasks.classify import cells
from unmask.tasks.classify.spec import SPEC
from unmask.tasks.classify.targets import TARGETS
from unmask.tasks.spec import TaskSpec
from unmask.tasks.task import DataSummary, FitContext, Outputs, Prediction, Task
from unmask.text.tokenizer import Tokenizer
from unmask.text.windows import TRUNCATES_LONGER_TEXT


class Classify(Task):
    SPEC = SPEC

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer, task_state: Mapping[str, Any] | None = None):
        super().__init__(recipe, tokenizer, task_state)
        target = self.task_state.get("target", "single_label")
        self.target_type = TARGETS[target](self.task_state)
        # Files for evaluation are parsed as the problem type of the trained model.
        classify = self.settings.classify.model_copy(update={"problem_type": target})
        self.settings = self.settings.model_copy(update={"classify": classify})

    @property
    def labels(self) -> list[str]:
        return self.target_type.labels

    @classmethod
    def make_spec(cls, settings: TaskRecipe, task_state: Mapping[str, Any], config: ModelConfig | None) -> TaskSpec:
        target_type, paired = TARGETS[task_state.get("target", "single_label")], task_state.get("pair")
        text, pair = cls.SPEC.inputs
        # None: unknown, because the model directory was written by another program.
        inputs_by_paired: dict[bool | None, tuple[tuple[Field, ...], tuple[int, int], str]] = {
            None: ((text, pair), (1, 2), "one text, or a text and its pair"),
            True: ((text, replace(pair, required=True)), (2, 2), 'a text and its pair: "a man sleeps" "nobody sleeps"'),
            False: ((text,), (1, 1), "one text"),
        }
        inputs, num_inputs, input_description = inputs_by_paired[paired]
        labels = tuple(task_state.get("labels", ()))
        metric = target_type(dict(task_state)).metric if labels else target_type.primary_metric
        spec = replace(
            cls.SPEC,
            output=target_type.output,
            metrics=(metric,),
            truncation_note=TRUNCATES_LONGER_TEXT if paired else "",
        )
        return spec.bind(
            inputs=inputs,
            num_inputs=num_inputs,
            input_description=input_description,
            labels=labels,
            text_pairs=bool(paired),
            scale=(task_state.get("mean", 0.0), task_state.get("sd", 1.0)),
            config_overrides={"labels": labels, "problem": target_type.problem_type},
        )

    # ----------------------------------------------------------------------------------------------- records

    @classmethod
    def fit_state(
        cls, context: FitContext, records: Sequence[Record], previous: Mapping[str, Any] | None = None
    ) -> DataSummary:
        settings, task_state = context.recipe.task.classify, super().fit_state(context, records, previous).task_state
        task_state.pop("weights", None)
        if previous is None:
            task_state["target"] = (
                cells.infer_problem_type(records) if settings.problem_type == "auto" else settings.problem_type
            )
        labels = context.recipe.task.labels if previous is None else previous["labels"]
        task_state |= TARGETS[task_state["target"]].fit_state(records, labels, settings.class_weight)
        paired = {"pair" in record for record in records}
        if previous is None and len(paired) == 1:
            task_state["pair"] = paired.pop()
        target_type = TARGETS[task_state["target"]](task_state)
        return DataSummary(
            task_state, [target_type.stratify_key(record) for record in records], target_type.describe(records)
        )

    @classmethod
    def state_from_folder(cls, folder: Path, config: ModelConfig, heads: Collection[str]) -> dict[str, Any] | None:
        previous = super().state_from_folder(folder, config, heads)
        target = next(
            (name for name, target_type in TARGETS.items() if target_type.problem_type == config.problem), None
        )
        target = target or ("regression" if len(config.labels) == 1 else "single_label")
        return None if previous is None else previous | {"labels": list(config.labels), "target": target}

    def encode(self, record: Record, labeled: bool = True) -> list[Example]:
        tokenizer, pair = self.tokenizer, record.get("pair")
        ids = tokenizer.encode(record["text"])
        if pair is not None:
            ids_pair = self.windowing.truncate_pair(record, ids, tokenizer.encode(pair))
            sequences = [tokenizer.build_inputs_with_special_tokens(*ids_pair)]
        else:
            max_tokens = self.windowing.max_text_tokens()
            self.windowing.check_overflow(record, [len(ids)], max_tokens)
            windows = self.windowing.windows(ids, max_tokens)
            sequences = [tokenizer.build_inputs_with_special_tokens(window) for window in windows]
        labels = {"classify.targets": self.target_type.encode_target(record)} if labeled else {}
        texts = (record["text"],) if pair is None else (record["text"], pair)
        return [Example(np.array(ids), np.array(segments), labels=labels, texts=texts) for ids, segments in sequences]

    # ------------------------------------------------------------------------------------------- predictions

    def calibrate(self, outputs: Outputs, records: Sequence[Record]) -> dict[str, Any]:
        return self.target_type.calibrate(outputs.record_means(), records)

    def decode(self, outputs: Outputs) -> list[Prediction]:
        return self.target_type.decode(outputs.record_means()) if len(outputs.record_index) else []

    def score(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        return self.target_type.score(predictions, records)

    def details(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, Any]:
        return self.target_type.details(predictions, records)
