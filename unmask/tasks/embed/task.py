"""Sentence vectors: texts that mean the same point the same way (Sentence-BERT 1908.10084).

| file                                    | record                              | loss                                          |
|-----------------------------------------|-------------------------------------|-----------------------------------------------|
| anchor, positive                        | {"text", "positive"}                | the positive among those of the whole batch   |
| anchor, positive, negative or negatives | {"text", "positive", "negatives"}   | the same, with the negatives among them       |
| sentence1, sentence2, score             | {"text", "positive", "score"}       | pairs in the order of their scores (CoSENT)   |
| plain text, or a text column alone      | {"text"}                            | the text found again under another dropout    |

The first two are a cross entropy over cosine / temperature (1807.03748); texts that are equal to the right one, or right for an equal
anchor, are left out, as they are no negatives. CoSENT (as the cosine objective of 2309.12871): log(1 + Σ exp((cos(worse) − cos(better)) /
temperature)) over all couples of pairs whose scores differ. The last is SimCSE (2104.08821). With `sizes`, the loss is summed over the
vector and its first so many numbers (Matryoshka, 2205.13147). A batch's other texts are the negatives, so here, and only here, the loss
depends on `train.micro_batch_size`: a forward pass sees its own rows. Those of several processes are gathered (`Gathered`, tasks/objective.py), but not with a
teacher or in a recipe of several tasks.

A text longer than a row is read in windows whose vectors are averaged before they are brought to length 1.
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

ANCHOR, POSITIVE, NEGATIVE = 0, 1, 2  # what a text is to its record
LOSSES = {
    "pairs": "each text has to find its positive among those of the batch",
    "scored": "the cosines of the pairs have to stand in the order of their scores (CoSENT)",
    "text": "no labels: each text has to find itself under another dropout (SimCSE)",
}


class Embed(Task):
    SPEC = SPEC

    @classmethod
    def make_spec(cls, settings: TaskRecipe, task_state: Mapping[str, Any], config: ModelConfig | None) -> TaskSpec:
        pooling, normalized = task_state.get("pooling", ""), bool(task_state.get("normalised", True))
        spec = cls.SPEC.bind(input_description="a text, or two to be compared", pooling=pooling, normalize=normalized)
        if spec.bound is None or not {"length", "loss", "lower", "prompt"} <= set(task_state):
            return spec
        sizes = "".join(f", and its first {size} numbers" for size in settings.embed.matryoshka_dims)
        note = f"{task_state['loss']}: {LOSSES[task_state['loss']]}; {pooling} vector{sizes}"
        files = sentence.SentenceTransformerConfig(
            pooling, normalized, int(task_state["length"]), task_state["lower"], task_state["prompt"]
        )
        return replace(spec, bound=replace(spec.bound, training_note=note, sentence=files))

    # ----------------------------------------------------------------------------------------------- records

    @classmethod
    def check(cls, recipe: Recipe, config: ModelConfig) -> None:
        super().check(recipe, config)
        if recipe.task.freeze == "encoder" and config.encoder != "lstm":  # ELMo's mix of layers still learns
            raise UserError(
                "--freeze encoder: the vectors are the encoder's own, nothing would learn", hint="leave it out"
            )
        wide = [size for size in recipe.task.embed.matryoshka_dims if size >= config.hidden]
        if wide:
            raise UserError(
                f"task.embed.matryoshka_dims: {wide[0]}", expected=f"below {config.hidden}, the whole vector's size"
            )

    @classmethod
    def fit_state(
        cls, context: FitContext, records: Sequence[Record], previous: Mapping[str, Any] | None = None
    ) -> DataSummary:
        summary, recipe, config = super().fit_state(context, records, previous), context.recipe, context.config
        if previous is not None:
            return summary
        forms = {"scored" if "score" in r else "pairs" if "positive" in r else "text" for r in records}
        if len(forms) > 1:
            raise UserError(
                f"files of several kinds: {' and '.join(sorted(forms))}", hint="fine-tune on one, then another"
            )
        loss = next(iter(forms), "pairs")
        if loss == "text" and not recipe.model.get("dropout", config.dropout):
            raise UserError(
                "text without labels is learnt by dropout, and this model has none", hint="--set model.dropout=0.1"
            )
        own = (
            sentence.read(resolve(recipe.init_from, sentence.PATTERNS)) if recipe.init_from else None
        ) or sentence.SentenceTransformerConfig()
        asked = [p for p in (recipe.task.embed.pooling, recipe.task.pooling) if p != "auto"]
        length = summary.task_state["length"]
        task_state = {
            "length": length if recipe.task.max_length else min(own.length or length, config.max_positions),
            "pooling": asked[0] if asked else own.pooling,
            "normalised": True,
            "lower": own.lower,
            "prompt": own.prompt,
            "loss": loss,
        }
        return DataSummary(task_state)

    @classmethod
    def state_from_folder(cls, folder: Path, config: ModelConfig, heads: Collection[str]) -> dict[str, Any] | None:
        """What a folder of sentence-transformers has learnt; None when it is none."""
        own = sentence.read(folder)
        if own is None:
            return None
        length = min(own.length or config.max_positions, config.max_positions)
        values = {"pooling": own.pooling, "normalised": own.normalised, "lower": own.lower, "prompt": own.prompt}
        return {"length": length, "loss": "pairs", **values}

    # ----------------------------------------------------------------------------------------------- rows

    def encode(self, record: Record, labelled: bool = True) -> list[Example]:
        """Labelled: one example that holds all rows of the record. Else a row after the other: the text's, the positive's."""
        texts = [(ANCHOR, record["text"]), *([(POSITIVE, record["positive"])] if "positive" in record else [])]
        if labelled and self.task_state["loss"] == "text":
            texts = [(ANCHOR, record["text"]), (POSITIVE, record["text"])]
        if labelled and self.task_state["loss"] == "pairs":
            texts += [(NEGATIVE, text) for text in record.get("negatives", ())]
        texts = [(role, self.task_state["prompt"] + text) for role, text in texts]
        ids = [self.tokenizer.encode(text.lower() if self.task_state["lower"] else text) for _, text in texts]
        self.windowing.check_overflow(record, map(len, ids), self.windowing.max_text_tokens())
        rows = [row for (role, text), own in zip(texts, ids) for row in self._rows(role, text, own, labelled)]
        if not labelled:
            return rows
        first = rows[0]
        first.labels |= {"embed.targets": np.array([float(record.get("score", 1.0))])}
        first.grouped_rows = rows[1:]
        return [first]

    def _rows(self, role: int, text: str, ids: list[int], labelled: bool) -> Iterator[Example]:
        for n, part in enumerate(self.windowing.windows(ids, self.windowing.max_text_tokens())):
            row, segments = self.tokenizer.build_inputs_with_special_tokens(part)
            labels = {"embed.role": np.array([role if n == 0 else -1]), "embed.text": np.array([_key(text)])}
            yield Example(
                np.array(row),
                np.array(segments),
                labels=labels if labelled else {},
                texts=(text,),
                metadata=(role, text),
            )

    # ----------------------------------------------------------------------------------------------- loss

    def forward(self, model: Model, batch: Batch) -> torch.Tensor:
        """(B, D): a vector per row, not yet of length 1."""
        if self.task_state["pooling"] == "cls":
            return model.encode(batch, batch.row_starts()).float()
        hidden = model.encode(batch).float()
        if batch.attention_mask is None:
            return hidden.mean(1)
        kept = batch.attention_mask[:, :, None].to(hidden.dtype)
        return (hidden * kept).sum(1) / kept.sum(1)

    def loss_terms(self, model: Model, batch: Batch) -> dict[str, Term]:
        from unmask.tasks.terms import Contrastive

        role, key, settings = batch.labels["embed.role"], batch.labels["embed.text"], self.settings.embed
        term = Contrastive(
            logits=contrastive.mean_by_text(self.forward(model, batch), role),
            targets=batch.labels["embed.targets"],
            role=role[role >= 0],  # of rows that begin a text; others are further windows of it
            key=key[role >= 0],
            temperature=settings.temperature,
            sizes=tuple(settings.matryoshka_dims),
            both=settings.symmetric_loss,
            scored=self.task_state["loss"] == "scored",
        )
        return {"embed": term}

    # ----------------------------------------------------------------------------------------------- answers

    def decode(self, outputs: Outputs) -> list[Prediction]:
        """A vector for a text; for a text and its positive the cosine, and the positive's place among all of them."""
        count = int(outputs.record_index.max()) + 1 if len(outputs.record_index) else 0
        roles = np.array([e.metadata[0] for e in outputs.examples], int)
        values = np.stack(outputs.values) if outputs.values else np.empty((0, 1))
        vectors = {
            role: contrastive.mean_by_record(values[roles == role], outputs.record_index[roles == role], count)
            for role in (0, 1)
        }
        if not (roles == POSITIVE).any():
            return [{"vector": v.tolist()} for v in l2_normalize(vectors[0], self.task_state["normalised"])]
        if len(set(outputs.record_index[roles == POSITIVE].tolist())) < count:
            raise UserError(
                "some records have a second text and others have none", hint="ask for them one after the other"
            )
        texts = {role: [""] * count for role in (0, 1)}
        for example, n in zip(outputs.examples, outputs.record_index):
            texts[example.metadata[0]][n] = example.metadata[1]
        return contrastive.compare_pairs(
            vectors[0], vectors[1], texts[0], texts[1], self.settings.embed.matryoshka_dims
        )

    def score(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        """Of scored pairs Spearman's correlation; of pairs recall and MRR with all positives of these records to choose from."""
        return contrastive.score(predictions, records, self.settings.embed.matryoshka_dims)

    def details(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, Any]:
        return contrastive.details(predictions, records)


def _key(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=7).digest(), "big")
