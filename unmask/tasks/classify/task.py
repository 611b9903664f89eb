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
from unmask.tasks.task import Answer, Given, Outputs, Study, Task
from unmask.text.tokenizer import Tokenizer
from unmask.text.windows import TRUNCATES_LONGER_TEXT


class Classify(Task):
    SPEC = SPEC

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer, learnt: Mapping[str, Any] | None = None):
        super().__init__(recipe, tokenizer, learnt)
        target = self.learnt.get("target", "one")
        self.goal = TARGETS[target](self.learnt)
        settled = self.settings.classify.model_copy(update={"target": target})  # by which other files are read
        self.settings = self.settings.model_copy(update={"classify": settled})

    @property
    def labels(self) -> list[str]:
        return self.goal.labels

    @classmethod
    def specify(cls, settings: TaskRecipe, learnt: Mapping[str, Any], config: ModelConfig | None) -> TaskSpec:
        goal, paired = TARGETS[learnt.get("target", "one")], learnt.get("pair")
        text, pair = cls.SPEC.inputs
        told: dict[bool | None, tuple[tuple[Field, ...], tuple[int, int], str]] = {
            None: ((text, pair), (1, 2), "one text, or a text and its pair"),  # unknown of a folder of someone else's
            True: ((text, replace(pair, required=True)), (2, 2), 'a text and its pair: "a man sleeps" "nobody sleeps"'),
            False: ((text,), (1, 1), "one text"),
        }
        inputs, parts, asks = told[paired]
        labels = tuple(learnt.get("labels", ()))
        metric = goal(dict(learnt)).metric if labels else goal.decides
        spec = replace(cls.SPEC, output=goal.output, metrics=(metric,), cut=TRUNCATES_LONGER_TEXT if paired else "")
        scale = (learnt.get("mean", 0.0), learnt.get("sd", 1.0))
        changed = {"labels": labels, "problem": goal.problem}
        return spec.bind(
            inputs=inputs, parts=parts, asks=asks, labels=labels, pairs=bool(paired), scale=scale, config=changed
        )

    # ----------------------------------------------------------------------------------------------- records

    @classmethod
    def study(cls, given: Given, records: Sequence[Record], known: Mapping[str, Any] | None = None) -> Study:
        settings, learnt = given.recipe.task.classify, super().study(given, records, known).learnt
        learnt.pop("weights", None)
        if known is None:
            learnt["target"] = cells.kind_of(records) if settings.target == "auto" else settings.target
        labels = given.recipe.task.labels if known is None else known["labels"]
        learnt |= TARGETS[learnt["target"]].study(records, labels, settings.balance)
        held = {"pair" in record for record in records}
        learnt |= {"pair": held.pop()} if known is None and len(held) == 1 else {}
        goal = TARGETS[learnt["target"]](learnt)
        return Study(learnt, [goal.stratum(record) for record in records], goal.describe(records))

    @classmethod
    def from_folder(cls, folder: Path, config: ModelConfig, heads: Collection[str]) -> dict[str, Any] | None:
        known = super().from_folder(folder, config, heads)
        target = next((name for name, kind in TARGETS.items() if kind.problem == config.problem), None)
        target = target or ("number" if len(config.labels) == 1 else "one")
        return None if known is None else known | {"labels": list(config.labels), "target": target}

    def rows(self, record: Record, labelled: bool = True) -> list[Example]:
        t, pair = self.tokenizer, record.get("pair")
        a, b = t.encode(record["text"]), None if pair is None else t.encode(pair)
        if b is not None:
            rows = [t.build_inputs_with_special_tokens(*self.windowing.truncate_pair(record, a, b))]
        else:
            room = self.windowing.max_text_tokens()
            self.windowing.check_overflow(record, [len(a)], room)
            rows = [t.build_inputs_with_special_tokens(piece) for piece in self.windowing.windows(a, room)]
        labels = {"classify.targets": self.goal.aim(record)} if labelled else {}
        texts = (record["text"],) if pair is None else (record["text"], pair)
        return [Example(np.array(ids), np.array(segments), labels=labels, texts=texts) for ids, segments in rows]

    # ----------------------------------------------------------------------------------------------- answers

    def tune(self, outputs: Outputs, records: Sequence[Record]) -> dict[str, Any]:
        return self.goal.tune(outputs.means(), records)

    def decode(self, outputs: Outputs) -> list[Answer]:
        return self.goal.decode(outputs.means()) if len(outputs.record) else []

    def score(self, answers: Sequence[Answer], records: Sequence[Record]) -> dict[str, float]:
        return self.goal.score(answers, records)

    def details(self, answers: Sequence[Answer], records: Sequence[Record]) -> dict[str, Any]:
        return self.goal.details(answers, records)
