"""Classification of one text or a pair (BERT 1810.04805 §4.1): one extra layer on the row's vector.

| record                                  | row                       | label          |
|-----------------------------------------|---------------------------|----------------|
| {"text": "what a film", "label": "pos"} | [CLS] what a film [SEP]   | index of "pos" |
| {"text": "a", "pair": "b", "label": …}  | [CLS] a [SEP] b [SEP]     |                |

A text longer than a row is read in windows whose decisions are averaged (`long: windows`), keeps its first tokens (`first`), or
is refused; pairs are never read in windows. `longer` counts such texts. `hide`: share of tokens masked while training.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch

from unmask.batch import Batch, Example, Phase
from unmask.data.records import Finding, Record, Source, assign, table_rows, text_of
from unmask.errors import UserError
from unmask.model.config import ModelConfig
from unmask.model.model import Model
from unmask.recipe import Recipe, TaskRecipe
from unmask.tasks.task import Answer, Outputs, Task


class Classify(Task):
    name = "classify"
    terms = ("classify",)
    heads = ("classify",)
    metric = "accuracy"
    roles: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "text": ("text", "sentence", "sentence1", "text1", "premise", "question1", "review", "content", "body",
                 "message", "comment", "title", "query", "document"),
        "pair": ("pair", "sentence2", "text2", "hypothesis", "question2", "second"),
        "label": ("label", "labels", "class", "category", "gold_label", "target", "sentiment", "intent", "topic", "score"),
    }  # fmt: skip
    needed = ("text",)
    target = ("label",)

    @property
    def labels(self) -> list[str]:
        return self.learnt["labels"]

    # ------------------------------------------------------------------------------------------------ files

    @classmethod
    def recognises(cls, source: Source) -> bool:
        names = {name.lower() for name in source.columns}
        return source.form == "table" and all(names & set(cls.roles[role]) for role in ("text", "label"))

    @classmethod
    def read(cls, source: Source, settings: TaskRecipe, findings: list[Finding], labelled: bool = True) -> list[Record]:
        needed = cls.needed + (cls.target if labelled else ())
        columns = assign(source.columns, cls.roles, settings.columns, needed, source.path)
        records: list[Record] = []
        for at, row in table_rows(source, "csv, tsv, jsonl or parquet with the columns text and label"):
            record: Record = {"at": at, "text": text_of(row.get(columns["text"]), at, "text", findings)}
            if "pair" in columns:
                record["pair"] = text_of(row.get(columns["pair"]), at, "pair", findings)
            if labelled or columns.get("label") in row:
                record["label"] = text_of(row.get(columns["label"]), at, "label", findings)
            records.append(record)
        return records

    @classmethod
    def ask(cls, *parts: Any) -> Record:
        return dict(zip(("text", "pair"), parts))

    # ----------------------------------------------------------------------------------------------- records

    @classmethod
    def study(cls, recipe: Recipe, config: ModelConfig, records: Sequence[Record]) -> dict[str, Any]:
        labels = recipe.task.labels or sorted({str(r["label"]) for r in records})
        return super().study(recipe, config, records) | {"labels": labels}

    @classmethod
    def remember(cls, config: ModelConfig) -> dict[str, Any]:
        return super().remember(config) | {"labels": list(config.labels)}

    def changes(self, config: ModelConfig) -> dict[str, Any]:
        pooling = self.settings.pooling
        return {"labels": tuple(self.labels)} | ({"pooling": pooling} if pooling != "auto" else {})

    def stratum(self, record: Record) -> str:
        return str(record["label"])

    def encode(self, record: Record, labelled: bool = True) -> list[Example]:
        t, pair = self.tokenizer, record.get("pair")
        a, b = t.encode(record["text"]), None if pair is None else t.encode(pair)
        room = self.room(pair is not None)
        too_long = len(a) + len(b or ()) > room
        self.longer += too_long
        if too_long and self.settings.long == "refuse":
            raise UserError(
                f"{record.get('at', 'the text')}: {len(a) + len(b or ()):,} tokens, a row has room for {room:,}",
                fix="task.long=windows reads all of it, task.long=first its beginning",
            )
        if b is not None:
            rows = [t.surround(*fit_pair(a, b, room))]
        else:
            rows = [
                t.surround(piece) for piece in (windows(a, room) if self.settings.long == "windows" else [a[:room]])
            ]
        labels = {"label": np.array([self.labels.index(str(record["label"]))])} if labelled else {}
        return [Example(np.array(ids), np.array(segments), labels=labels) for ids, segments in rows]

    def corrupt(self, example: Example, rng: np.random.Generator, phase: Phase) -> Example:
        """While training, a share `hide` of the tokens stands behind [MASK], others each epoch: few labels last longer."""
        if not self.settings.hide:
            return example
        mask = self.tokenizer.unk if self.tokenizer.mask is None else self.tokenizer.mask
        hidden = (rng.random(len(example)) < self.settings.hide) & ~self.tokenizer.special[example.ids]
        return replace(example, ids=np.where(hidden, mask, example.ids))

    def outputs(
        self, model: Model, hidden: torch.Tensor, batch: Batch
    ) -> Mapping[str, tuple[torch.Tensor, torch.Tensor]]:
        return {"classify": (model.logits("classify", hidden, batch.mask), batch.labels["label"])}

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"classify": batch.rows}

    # ----------------------------------------------------------------------------------------------- answers

    def decode(self, outputs: Outputs) -> list[Answer]:
        """Label and probabilities per record; of a text in windows, the mean of their log-probabilities."""
        logits, record = np.stack(outputs.values).astype(np.float64), outputs.record
        logits -= logits.max(-1, keepdims=True)
        log_shares = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        pooled = np.zeros((int(record.max()) + 1, logits.shape[1]))
        np.add.at(pooled, record, log_shares)
        shares = np.exp(pooled / np.bincount(record)[:, None])
        shares /= shares.sum(-1, keepdims=True)
        return [
            {
                "label": self.labels[int(p.argmax())],
                "probability": float(p.max()),
                "scores": dict(zip(self.labels, p.tolist())),
            }
            for p in shares
        ]

    def score(self, answers: Sequence[Answer], records: Sequence[Record]) -> dict[str, float]:
        right = sum(a["label"] == str(r["label"]) for a, r in zip(answers, records, strict=True))
        return {"accuracy": right / max(1, len(records))}


def fit_pair(a: list[int], b: list[int], room: int) -> tuple[list[int], list[int]]:
    """Both, cut at the end until they fit; the longer one gives way first.

    >>> fit_pair([1, 2, 3, 4, 5], [6, 7], 5)
    ([1, 2, 3], [6, 7])
    >>> fit_pair([1, 2, 3, 4], [5, 6, 7, 8], 5)
    ([1, 2, 3], [5, 6])
    """
    keep_b = min(len(b), max(room // 2, room - len(a)))
    return a[: room - keep_b], b[:keep_b]


def windows(ids: list[int], size: int) -> list[list[int]]:
    """As few windows of `size` as cover everything, evenly spread.

    >>> windows([1, 2, 3, 4, 5], 3)
    [[1, 2, 3], [3, 4, 5]]
    >>> windows([1, 2], 3)
    [[1, 2]]
    """
    count = -(-len(ids) // size)
    if count < 2:
        return [ids]
    starts = [round(n * (len(ids) - size) / (count - 1)) for n in range(count)]
    return [ids[start : start + size] for start in starts]
