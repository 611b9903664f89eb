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

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

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
from unmask.tasks.task import Answer, Outputs, Task
from unmask.text.tokenizer import Tokenizer
from unmask.text.windows import LONGER_PART

if TYPE_CHECKING:
    from unmask.model.model import Model


class Classify(Task):
    SPEC = SPEC
    metric = "accuracy"

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer, learnt: Mapping[str, Any] | None = None):
        super().__init__(recipe, tokenizer, learnt)
        target = self.learnt.get("target", "one")
        self.goal = TARGETS[target](self.learnt)
        self.metric = self.goal.metric
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
        spec = replace(cls.SPEC, output=goal.output, metrics=(metric,), cut=LONGER_PART if paired else "")
        scale = (learnt.get("mean", 0.0), learnt.get("sd", 1.0))
        return spec.bind(inputs=inputs, parts=parts, asks=asks, labels=labels, pairs=bool(paired), scale=scale)

    # ----------------------------------------------------------------------------------------------- records

    @classmethod
    def study(cls, recipe: Recipe, config: ModelConfig, records: Sequence[Record]) -> dict[str, Any]:
        settings = recipe.task.classify
        target = cells.kind_of(records) if settings.target == "auto" else settings.target
        found = TARGETS[target].study(records, recipe.task.labels, settings.balance)
        held = {"pair" in record for record in records}
        found |= {"pair": held.pop()} if len(held) == 1 else {}
        return super().study(recipe, config, records) | {"target": target} | found

    @classmethod
    def weigh(cls, recipe: Recipe, learnt: dict[str, Any], train: Sequence[Record]) -> dict[str, Any]:
        found = TARGETS[learnt["target"]].study(train, learnt["labels"], recipe.task.classify.balance)
        return {key: value for key, value in learnt.items() if key != "weights"} | found

    @classmethod
    def remember(cls, config: ModelConfig) -> dict[str, Any]:
        target = next((name for name, kind in TARGETS.items() if kind.problem == config.problem), None)
        target = target or ("number" if len(config.labels) == 1 else "one")
        return super().remember(config) | {"labels": list(config.labels), "target": target}

    def adopt(self, head: Any, before: Task) -> bool:
        from unmask.model.heads import fold, reorder, unfold

        old, new = before.spec, self.spec
        if old.name != new.name or (old.output == "number") != (new.output == "number"):
            return False
        if new.output != "number":
            return reorder(head.out, old.labels, new.labels)
        fold(head.out, *old.scale)
        unfold(head.out, *new.scale)
        return True

    def changes(self, config: ModelConfig) -> dict[str, Any]:
        return super().changes(config) | {"labels": tuple(self.labels), "problem": self.goal.problem}

    def stratum(self, record: Record) -> str:
        return self.goal.stratum(record)

    def describe(self, records: Sequence[Record]) -> str:
        return self.goal.describe(records)

    def encode(self, record: Record, labelled: bool = True) -> list[Example]:
        t, pair = self.tokenizer, record.get("pair")
        a, b = t.encode(record["text"]), None if pair is None else t.encode(pair)
        if b is not None:
            rows = [t.surround(*self.windowing.pair(record, a, b))]
        else:
            room = self.windowing.room()
            self.windowing.check(record, [len(a)], room)
            rows = [t.surround(piece) for piece in self.windowing.pieces(a, room)]
        labels = {"classify.targets": self.goal.aim(record)} if labelled else {}
        texts = (record["text"],) if pair is None else (record["text"], pair)
        return [Example(np.array(ids), np.array(segments), labels=labels, texts=texts) for ids, segments in rows]

    # -------------------------------------------------------------------------------------------------- loss

    def complete(self, model: Model) -> None:
        """A number is learnt in standard deviations; the saved layer gives it as it is."""
        from unmask.model.heads import fold

        if self.spec.scale != (0.0, 1.0):
            last: Any = model.heads[self.heads[0]]
            fold(last.out, *self.spec.scale)
            self.learnt |= {"mean": 0.0, "sd": 1.0}

    # ----------------------------------------------------------------------------------------------- answers

    def tune(self, outputs: Outputs, records: Sequence[Record]) -> None:
        self.goal.tune(outputs.means(), records)

    def decode(self, outputs: Outputs) -> list[Answer]:
        return self.goal.decode(outputs.means()) if len(outputs.record) else []

    def score(self, answers: Sequence[Answer], records: Sequence[Record]) -> dict[str, float]:
        return self.goal.score(answers, records)

    def details(self, answers: Sequence[Answer], records: Sequence[Record]) -> dict[str, Any]:
        return self.goal.details(answers, records)
