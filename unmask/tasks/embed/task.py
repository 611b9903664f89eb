"""Sentence embeddings: texts with the same meaning get similar vectors (Sentence-BERT 1908.10084).

| file                                    | record                              | loss                                          |
|-----------------------------------------|-------------------------------------|-----------------------------------------------|
| anchor, positive                        | {"text", "positive"}                | `pairs`: in-batch negatives                   |
| anchor, positive, negative or negatives | {"text", "positive", "negatives"}   | `pairs`: in-batch and given negatives         |
| sentence1, sentence2, score             | {"text", "positive", "score"}       | `scored`: CoSENT                              |
| plain text, or a text column alone      | {"text"}                            | `text`: SimCSE                                |

`pairs` is the cross-entropy over cosine / temperature (InfoNCE, 1807.03748). Texts equal to the positive, and positives of an equal anchor,
are not used as negatives. CoSENT (the cosine objective of 2309.12871) is log(1 + Σ exp((cos(worse) − cos(better)) / temperature)) over all
couples of pairs whose scores differ. In SimCSE (2104.08821) the positive is the same text under another dropout mask. With
`matryoshka_dims`, the loss is summed over the vector and its first dimensions (2205.13147).

The negatives are the other texts of a forward pass, so the loss depends on `train.micro_batch_size`, unlike that of other tasks. The texts
of several processes are gathered (`GatheredObjective`, tasks/objective.py), except with a teacher or in a recipe of several tasks.

A text longer than a row is split into windows. Their vectors are averaged, and then normalized to length 1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unmask.batch import Batch, Example
from unmask.errors import UserError
from unmask.hub import resolve
from unmask.labels.records import Record
from unmask.model import sentence
from unmask.model.config import ModelConfig
from unmask.numeric import l2_normalize
from unmask.recipe import Recipe, TaskRecipe
from unmask.tasks import contrastive
from unmask.tasks.embed.spec import SPEC
from unmask.tasks.spec import TaskSpec
from unmask.tasks.task import DataSummary, FitContext, Outputs, Prediction, Task

if TYPE_CHECKING:
    import torch

    from unmask.model.model import Model
    from unmask.tasks.terms import Term

ANCHOR, POSITIVE, NEGATIVE = 0, 1, 2  # role of a text in its record
LOSSES = {
    "pairs": "each text retrieves its positive among those of the batch",
    "scored": "the cosines of the pairs are ordered by their scores (CoSENT)",
    "text": "no labels: each text retrieves itself under another dropout mask (SimCSE)",
}


class Embed(Task):
    SPEC = SPEC

    @classmethod
    def make_spec(cls, settings: TaskRecipe, task_state: Mapping[str, Any], config: ModelConfig | None) -> TaskSpec:
        pooling, normalized = task_state.get("pooling", ""), bool(task_state.get("normalised", True))
        spec = cls.SPEC.bind(input_description="a text, or two texts to compare", pooling=pooling, normalize=normalized)
        if spec.bound is None or not {"length", "loss", "lower", "prompt"} <= set(task_state):
            return spec
        sizes = "".join(f", and its first {size} dimensions" for size in settings.embed.matryoshka_dims)
        note = f"{task_state['loss']}: {LOSSES[task_state['loss']]}; {pooling} vector{sizes}"
        files = sentence.SentenceTransformerConfig(
            pooling, normalized, int(task_state["length"]), task_state["lower"], task_state["prompt"]
        )
        return replace(spec, bound=replace(spec.bound, training_note=note, sentence=files))

    # ----------------------------------------------------------------------------------------------- records

    @classmethod
    def check(cls, recipe: Recipe, config: ModelConfig) -> None:
        super().check(recipe, config)
        if recipe.task.freeze == "encoder" and config.encoder != "lstm":  # ELMo still trains its mix of layers
            raise UserError(
                "--freeze encoder leaves nothing to train: the vectors come from the encoder", hint="remove --freeze"
            )
        too_large = [size for size in recipe.task.embed.matryoshka_dims if size >= config.hidden]
        if too_large:
            raise UserError(
                f"task.embed.matryoshka_dims contains {too_large[0]}",
                expected=f"sizes below {config.hidden}, the size of the full vector",
            )

    @classmethod
    def fit_state(
        cls, context: FitContext, records: Sequence[Record], previous: Mapping[str, Any] | None = None
    ) -> DataSummary:
        summary, recipe, config = super().fit_state(context, records, previous), context.recipe, context.config
        if previous is not None:
            return summary
        losses = {"scored" if "score" in r else "pairs" if "positive" in r else "text" for r in records}
        if len(losses) > 1:
            raise UserError(
                f"the training files mix records of different kinds: {' and '.join(sorted(losses))}",
                hint="fine-tune on the files of one kind, then fine-tune the result on the others",
            )
        loss = next(iter(losses), "pairs")
        if loss == "text" and not recipe.model.get("dropout", config.dropout):
            raise UserError(
                "training on text without labels needs dropout, and this model has none", hint="--set model.dropout=0.1"
            )
        base = sentence.read(resolve(recipe.init_from, sentence.PATTERNS)) if recipe.init_from else None
        base = base or sentence.SentenceTransformerConfig()
        requested = [p for p in (recipe.task.embed.pooling, recipe.task.pooling) if p != "auto"]
        length = summary.task_state["length"]
        task_state = {
            "length": length if recipe.task.max_length else min(base.length or length, config.max_positions),
            "pooling": requested[0] if requested else base.pooling,
            "normalised": True,
            "lower": base.lower,
            "prompt": base.prompt,
            "loss": loss,
        }
        return DataSummary(task_state)

    @classmethod
    def state_from_folder(cls, folder: Path, config: ModelConfig, heads: Collection[str]) -> dict[str, Any] | None:
        """Return the task state of a folder of sentence-transformers, or None for other folders."""
        files = sentence.read(folder)
        if files is None:
            return None
        return {
            "length": min(files.length or config.max_positions, config.max_positions),
            "loss": "pairs",
            "pooling": files.pooling,
            "normalised": files.normalised,
            "lower": files.lower,
            "prompt": files.prompt,
        }

    # ----------------------------------------------------------------------------------------------- rows

    def encode(self, record: Record, labeled: bool = True) -> list[Example]:
        """Return the rows of the text and of its positive, or if `labeled` one example that contains all rows of the record."""
        texts = [(ANCHOR, record["text"]), *([(POSITIVE, record["positive"])] if "positive" in record else [])]
        if labeled and self.task_state["loss"] == "text":
            texts = [(ANCHOR, record["text"]), (POSITIVE, record["text"])]
        if labeled and self.task_state["loss"] == "pairs":
            texts += [(NEGATIVE, text) for text in record.get("negatives", ())]
        texts = [(role, self.task_state["prompt"] + text) for role, text in texts]
        ids = [self.tokenizer.encode(text.lower() if self.task_state["lower"] else text) for _, text in texts]
        self.windowing.check_overflow(record, map(len, ids), self.windowing.max_text_tokens())
        rows = [row for (role, text), tokens in zip(texts, ids) for row in self._rows(role, text, tokens, labeled)]
        if not labeled:
            return rows
        first = rows[0]
        first.labels |= {"embed.targets": np.array([float(record.get("score", 1.0))])}
        first.grouped_rows = rows[1:]
        return [first]

    def _rows(self, role: int, text: str, ids: list[int], labeled: bool) -> Iterator[Example]:
        for n, window in enumerate(self.windowing.windows(ids, self.windowing.max_text_tokens())):
            row, segments = self.tokenizer.build_inputs_with_special_tokens(window)
            labels = {"embed.role": np.array([role if n == 0 else -1]), "embed.text": np.array([_key(text)])}
            yield Example(
                np.array(row),
                np.array(segments),
                labels=labels if labeled else {},
                texts=(text,),
                metadata=(role, text),
            )

    # ----------------------------------------------------------------------------------------------- loss

    def forward(self, model: Model, batch: Batch) -> torch.Tensor:
        """Return (B, D): a vector per row, before normalization."""
        if self.task_state["pooling"] == "cls":
            return model.encode(batch, batch.row_starts()).float()
        hidden = model.encode(batch).float()
        if batch.attention_mask is None:
            return hidden.mean(1)
        mask = batch.attention_mask[:, :, None].to(hidden.dtype)
        return (hidden * mask).sum(1) / mask.sum(1)

    def loss_terms(self, model: Model, batch: Batch) -> dict[str, Term]:
        from unmask.tasks.terms import Contrastive

        role, key, settings = batch.labels["embed.role"], batch.labels["embed.text"], self.settings.embed
        term = Contrastive(
            logits=contrastive.mean_by_text(self.forward(model, batch), role),
            targets=batch.labels["embed.targets"],
            role=role[role >= 0],  # first windows only
            key=key[role >= 0],
            temperature=settings.temperature,
            sizes=tuple(settings.matryoshka_dims),
            both=settings.symmetric_loss,
            scored=self.task_state["loss"] == "scored",
        )
        return {"embed": term}

    # ------------------------------------------------------------------------------------------- predictions

    def decode(self, outputs: Outputs) -> list[Prediction]:
        """Return the vector of a text, or for a pair the cosine and the rank ("place") of the positive among all positives."""
        count = int(outputs.record_index.max()) + 1 if len(outputs.record_index) else 0
        roles = np.array([e.metadata[0] for e in outputs.examples], int)
        values = np.stack(outputs.values) if outputs.values else np.empty((0, 1))
        vectors = {
            role: contrastive.mean_by_record(values[roles == role], outputs.record_index[roles == role], count)
            for role in (ANCHOR, POSITIVE)
        }
        if not (roles == POSITIVE).any():
            return [{"vector": v.tolist()} for v in l2_normalize(vectors[ANCHOR], self.task_state["normalised"])]
        if len(set(outputs.record_index[roles == POSITIVE].tolist())) < count:
            raise UserError(
                "some records have a second text and others do not",
                hint="predict pairs and single texts in separate calls",
            )
        texts = {role: [""] * count for role in (ANCHOR, POSITIVE)}
        for example, n in zip(outputs.examples, outputs.record_index):
            texts[example.metadata[0]][n] = example.metadata[1]
        return contrastive.compare_pairs(
            vectors[ANCHOR],
            vectors[POSITIVE],
            texts[ANCHOR],
            texts[POSITIVE],
            self.settings.embed.matryoshka_dims,
        )

    def score(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        return contrastive.score(predictions, records, self.settings.embed.matryoshka_dims)

    def details(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, Any]:
        return contrastive.details(predictions, records)


def _key(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=7).digest(), "big")
