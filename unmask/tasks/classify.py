"""Classification of one text or a pair (BERT 1810.04805 §4.1): one extra layer on the row's vector.

| record                                  | row                       | label          |
|-----------------------------------------|---------------------------|----------------|
| {"text": "what a film", "label": "pos"} | [CLS] what a film [SEP]   | index of "pos" |
| {"text": "a", "pair": "b", "label": …}  | [CLS] a [SEP] b [SEP]     |                |

A text longer than `length` keeps its first tokens (`long="first"`), or is read in windows of that length whose decisions are
averaged (`long="windows"`). `longer` counts such texts. `hide`: share of tokens masked while training.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch

from unmask.batch import Batch, Example, Phase
from unmask.data.tokenizer import Tokenizer
from unmask.model.model import Model
from unmask.recipe import Recipe
from unmask.tasks.task import Record, Task

Long = Literal["first", "windows"]


class Classify(Task):
    name = "classify"
    terms = ("classify",)
    heads = ("classify",)

    def __init__(
        self,
        recipe: Recipe,
        tokenizer: Tokenizer,
        labels: Sequence[str],
        length: int,
        long: Long = "first",
        hide: float = 0.0,
    ):
        super().__init__(recipe, tokenizer)
        self.labels, self.length, self.long, self.hide, self.longer = list(labels), length, long, hide, 0
        self._number = {label: n for n, label in enumerate(self.labels)}

    def encode(self, record: Record) -> list[Example]:
        t = self.tokenizer
        a = t.encode(record["text"])
        b = t.encode(record["pair"]) if record.get("pair") is not None else []
        room = self.length - (3 if b else 2)
        self.longer += len(a) + len(b) > room
        if self.long == "windows" and not b:
            pieces = [(piece, b) for piece in windows(a, room)]
        else:
            pieces = [fit_pair(a, b, room)]
        return [self._row(a, b, record) for a, b in pieces]

    def _row(self, a: list[int], b: list[int], record: Record) -> Example:
        t = self.tokenizer
        ids = [t.cls, *a, t.sep, *b, *([t.sep] if b else [])]
        segments = np.array([0] * (len(a) + 2) + [1] * (len(ids) - len(a) - 2))
        labels = {"label": np.array([self._number[str(record["label"])]])} if "label" in record else {}
        return Example(np.array(ids), segments, labels=labels)

    def corrupt(self, example: Example, rng: np.random.Generator, phase: Phase) -> Example:
        """While training, a share `hide` of the tokens stands behind [MASK], others each epoch: few labels last longer."""
        mask = self.tokenizer.unk if self.tokenizer.mask is None else self.tokenizer.mask
        hidden = (rng.random(len(example)) < self.hide) & ~self.tokenizer.special[example.ids]
        return replace(example, ids=np.where(hidden, mask, example.ids))

    def outputs(
        self, model: Model, hidden: torch.Tensor, batch: Batch
    ) -> Mapping[str, tuple[torch.Tensor, torch.Tensor]]:
        return {"classify": (model.logits("classify", hidden, batch.mask), batch.labels["label"])}

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"classify": batch.rows}

    def decode(self, arrays: dict[str, np.ndarray], examples: Sequence[Example]) -> list[dict[str, Any]]:
        """`logits` (E, C) and the number of the `record` each example is of (E,) → label and probabilities per record."""
        logits, record = arrays["logits"].astype(np.float64), arrays["record"]
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

    def score(self, answers: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, float]:
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
