"""Re-ranking with a cross-encoder (1901.04085): query and passage in one row, [CLS] query [SEP] passage [SEP] → how well it answers.

| file                                                    | record                                                      |
|---------------------------------------------------------|-------------------------------------------------------------|
| a row per pair: query, passage, relevance (, query_id)  | {"query", "passages": […], "relevance": […]} of each query  |
| jsonl {"query", "positives": […], "negatives": […]}     | the same, with relevance 1 and 0                            |
| TREC qrels, with columns {queries: FILE, passages: FILE} | the same; `candidates: FILE` adds what a search found (a run) |

Loss `list`: a softmax over one relevant passage and `negatives` less relevant ones, drawn anew each epoch; grades count, as what is less
relevant is below. Loss `point`: for each passage a cross entropy against its relevance, as a share of the highest one.

Where a file says only which passages are relevant, a query is given others of the same file, drawn once, up to `pool` in all: they are
taken as not relevant, in training and in the scores. A passage that is too long loses its end (the query at most half of the row).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from unmask.batch import Example
from unmask.errors import UserError
from unmask.files import read_object
from unmask.labels.records import Record
from unmask.model.config import ModelConfig
from unmask.recipe import Recipe, TaskRecipe
from unmask.tasks.rank.spec import SPEC
from unmask.tasks.ranking import mean_metrics, rank_order, ranking_metrics
from unmask.tasks.spec import TaskSpec
from unmask.tasks.task import DEFAULT_MAX_LENGTH, DataSummary, FitContext, Outputs, Prediction, Task
from unmask.text.windows import truncate_pair

SHOWN = 20


class Rank(Task):
    SPEC = SPEC

    @classmethod
    def make_spec(cls, settings: TaskRecipe, task_state: Mapping[str, Any], config: ModelConfig | None) -> TaskSpec:
        return cls.SPEC.bind(
            input_description="a query and one passage or more",
            text_pairs=True,
            config_overrides={"labels": ("relevance",)},
        )

    # ----------------------------------------------------------------------------------------------- records

    @classmethod
    def check(cls, recipe: Recipe, config: ModelConfig) -> None:
        super().check(recipe, config)
        if recipe.task.teacher and recipe.task.rank.loss == "pointwise":
            raise UserError(
                "--teacher with task.rank.loss=point: its scores say which passage is better, not how relevant one is",
                hint="leave task.rank.loss out",
            )

    @classmethod
    def fit_state(
        cls, context: FitContext, records: Sequence[Record], previous: Mapping[str, Any] | None = None
    ) -> DataSummary:
        task_state = super().fit_state(context, records, previous).task_state
        most = max((grade for r in records for grade in r["relevance"]), default=1.0)
        return DataSummary(task_state | ({"most": max(most, 1e-9)} if previous is None else {}))

    @classmethod
    def state_from_folder(cls, folder: Path, config: ModelConfig, heads: Collection[str]) -> dict[str, Any] | None:
        """A CrossEncoder of sentence-transformers, which says so in config.json."""
        file = folder / "config.json"
        settings = read_object(file) if file.is_file() else {}
        told = "sentence_transformers" in settings or "sbert_ce_default_activation_function" in settings
        length = min(DEFAULT_MAX_LENGTH, config.max_positions)
        return {"length": length, "most": 1.0} if told and len(config.labels) == 1 else None

    def encode(self, record: Record, labelled: bool = True) -> list[Example]:
        """Labelled: by `list` an example per relevant passage, `more` are those it may be compared with; else a row per passage."""
        if not record["passages"]:
            raise UserError(
                f"{record.get('location', record['query'])}: no passages to put in order",
                hint='unmask predict MODEL "query" "passage" "passage" …',
            )
        query = self.tokenizer.encode(record["query"])
        passages, room = (
            [self.tokenizer.encode(text) for text in record["passages"]],
            self.windowing.max_text_tokens(pair=True),
        )
        sizes = [len(query) + len(ids) for ids in passages]
        over = next((n for n, size in enumerate(sizes, 1) if size > room), 0)
        self.windowing.check_overflow(record, sizes, room, f"passage {over}")
        rows = [self._row(query, ids, number, record) for number, ids in enumerate(passages)]
        if not labelled:
            return rows
        grades = record["relevance"]
        if self.settings.rank.loss == "pointwise":
            for row, grade in zip(rows, grades):
                row.labels = {"rank.targets": np.array([max(0.0, grade) / self.task_state["most"]])}
            return rows
        below = [[row for row, grade in zip(rows, grades) if grade < own] for own in grades]
        first = {"rank.targets": np.array([0])}  # the relevant one stands first
        return [replace(row, labels=first, grouped_rows=b) for row, own, b in zip(rows, grades, below) if own > 0 and b]

    def _row(self, query: list[int], ids: list[int], number: int, record: Record) -> Example:
        row, segments = self.tokenizer.build_inputs_with_special_tokens(
            *truncate_pair(query, ids, self.windowing.max_text_tokens(pair=True))
        )
        texts = (record["query"], record["passages"][number])
        return Example(np.array(row), np.array(segments), texts=texts, metadata=number)

    # ----------------------------------------------------------------------------------------------- answers

    def decode(self, outputs: Outputs) -> list[Prediction]:
        """A score per passage, and the passages' places in the record, best first."""
        values = np.array([float(v) for v in outputs.values])
        several = np.split(values, np.flatnonzero(np.diff(outputs.record_index)) + 1) if len(values) else []
        return [{"scores": scores.tolist(), "order": rank_order(scores).tolist()} for scores in several]

    def score(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        return mean_metrics([_ranked(a, r) for a, r in zip(predictions, records, strict=True)])

    def details(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, Any]:
        errors: list[dict[str, Any]] = []
        right: list[dict[str, Any]] = []
        for prediction, record in zip(predictions, records):
            best, grades = prediction["order"][0], record["relevance"]
            row = {"location": record["location"], "text": record["query"], "predicted": record["passages"][best]}
            row |= {
                "expected": record["passages"][int(np.argmax(grades))],
                "score": _ranked(prediction, record)["ndcg@10"],
            }
            (right if grades[best] > 0 else errors).append(row)
        return {"errors": sorted(errors, key=lambda row: row["score"])[:SHOWN], "examples": right[:10]}


def _ranked(prediction: Prediction, record: Record) -> dict[str, float]:
    """Scores of a query; equal scores are broken by the passages' ids where the file has them."""
    grades = np.asarray(record["relevance"], np.float64)
    return ranking_metrics(grades[rank_order(prediction["scores"], record.get("ids"))], grades)
