"""Classification of one text or a pair (BERT 1810.04805 §4.1): one extra layer on the row's vector.

| record                                  | row                       | label (targets.py)                     |
|-----------------------------------------|---------------------------|----------------------------------------|
| {"text": "what a film", "label": "pos"} | [CLS] what a film [SEP]   | one: index of "pos"                    |
| {"text": "a", "pair": "b", "label": …}  | [CLS] a [SEP] b [SEP]     |                                        |
| {"text": "…", "label": ["a", "b"]}      |                           | several: 0 or 1 for each label         |
| {"text": "…", "label": 3.5}             |                           | a number                               |

A text longer than a row is read in windows whose logits are averaged (`long: windows`), keeps its first tokens (`first`), or
is refused; pairs are never read in windows. `hide`: share of tokens masked while training.
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
        settled = self.settings.classify.model_copy(update={"problem_type": target})  # by which other files are read
        self.settings = self.settings.model_copy(update={"classify": settled})

    @property
    def labels(self) -> list[str]:
        return self.target_type.labels

    @classmethod
    def make_spec(cls, settings: TaskRecipe, task_state: Mapping[str, Any], config: ModelConfig | None) -> TaskSpec:
        target_type, paired = TARGETS[task_state.get("target", "single_label")], task_state.get("pair")
        text, pair = cls.SPEC.inputs
        told: dict[bool | None, tuple[tuple[Field, ...], tuple[int, int], str]] = {
            None: ((text, pair), (1, 2), "one text, or a text and its pair"),  # unknown of a folder of someone else's
            True: ((text, replace(pair, required=True)), (2, 2), 'a text and its pair: "a man sleeps" "nobody sleeps"'),
            False: ((text,), (1, 1), "one text"),
        }
        inputs, parts, input_description = told[paired]
        labels = tuple(task_state.get("labels", ()))
        metric = target_type(dict(task_state)).metric if labels else target_type.primary_metric
        spec = replace(
            cls.SPEC,
            output=target_type.output,
            metrics=(metric,),
            truncation_note=TRUNCATES_LONGER_TEXT if paired else "",
        )
        scale = (task_state.get("mean", 0.0), task_state.get("sd", 1.0))
        changed = {"labels": labels, "problem": target_type.problem_type}
        return spec.bind(
            inputs=inputs,
            num_inputs=parts,
            input_description=input_description,
            labels=labels,
            text_pairs=bool(paired),
            scale=scale,
            config_overrides=changed,
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
        held = {"pair" in record for record in records}
        task_state |= {"pair": held.pop()} if previous is None and len(held) == 1 else {}
        target_type = TARGETS[task_state["target"]](task_state)
        return DataSummary(
            task_state, [target_type.stratify_key(record) for record in records], target_type.describe(records)
        )

    @classmethod
    def state_from_folder(cls, folder: Path, config: ModelConfig, heads: Collection[str]) -> dict[str, Any] | None:
        previous = super().state_from_folder(folder, config, heads)
        target = next((name for name, kind in TARGETS.items() if kind.problem_type == config.problem), None)
        target = target or ("regression" if len(config.labels) == 1 else "single_label")
        return None if previous is None else previous | {"labels": list(config.labels), "target": target}

    def encode(self, record: Record, labelled: bool = True) -> list[Example]:
        t, pair = self.tokenizer, record.get("pair")
        a, b = t.encode(record["text"]), None if pair is None else t.encode(pair)
        if b is not None:
            rows = [t.build_inputs_with_special_tokens(*self.windowing.truncate_pair(record, a, b))]
        else:
            room = self.windowing.max_text_tokens()
            self.windowing.check_overflow(record, [len(a)], room)
            rows = [t.build_inputs_with_special_tokens(piece) for piece in self.windowing.windows(a, room)]
        labels = {"classify.targets": self.target_type.encode_target(record)} if labelled else {}
        texts = (record["text"],) if pair is None else (record["text"], pair)
        return [Example(np.array(ids), np.array(segments), labels=labels, texts=texts) for ids, segments in rows]

    # ----------------------------------------------------------------------------------------------- answers

    def calibrate(self, outputs: Outputs, records: Sequence[Record]) -> dict[str, Any]:
        return self.target_type.calibrate(outputs.record_means(), records)

    def decode(self, outputs: Outputs) -> list[Prediction]:
        return self.target_type.decode(outputs.record_means()) if len(outputs.record_index) else []

    def score(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        return self.target_type.score(predictions, records)

    def details(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, Any]:
        return self.target_type.details(predictions, records)
