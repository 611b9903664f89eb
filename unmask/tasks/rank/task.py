"""Re-ranking with a cross-encoder (1901.04085): [CLS] query [SEP] passage [SEP] → a relevance score.

| file                                                    | record                                                      |
|---------------------------------------------------------|-------------------------------------------------------------|
| a row per pair: query, passage, relevance (, query_id)  | {"query", "passages": […], "relevance": […]} of each query  |
| jsonl {"query", "positives": […], "negatives": […]}     | the same, with relevance 1 and 0                            |
| TREC qrels, with columns {queries: FILE, passages: FILE} | the same; `candidates: FILE` adds the results of a search (a TREC run) |

Loss `listwise`: a softmax over one relevant passage and `num_negatives` passages with a lower grade, resampled every epoch.
Loss `pointwise`: binary cross entropy of each passage against its relevance divided by the highest relevance.

If a file lists only relevant passages, random passages of the same file are added once, until a query has
`candidate_pool_size`. They count as not relevant, in training and in the metrics. A passage that is too long is cut at
its end; the query keeps at most half of the sequence.
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

MAX_ERRORS_SHOWN, MAX_EXAMPLES_SHOWN = 20, 10


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
                "--teacher cannot be combined with task.rank.loss=pointwise: a teacher's scores rank passages, but have no fixed scale",
                hint="remove task.rank.loss, to train with the listwise loss",
            )

    @classmethod
    def fit_state(
        cls, context: FitContext, records: Sequence[Record], previous: Mapping[str, Any] | None = None
    ) -> DataSummary:
        task_state = super().fit_state(context, records, previous).task_state
        max_grade = max((grade for r in records for grade in r["relevance"]), default=1.0)
        return DataSummary(task_state | ({"most": max(max_grade, 1e-9)} if previous is None else {}))

    @classmethod
    def state_from_folder(cls, folder: Path, config: ModelConfig, heads: Collection[str]) -> dict[str, Any] | None:
        """Recognize a CrossEncoder of sentence-transformers by its keys in config.json."""
        file = folder / "config.json"
        values = read_object(file) if file.is_file() else {}
        is_cross_encoder = "sentence_transformers" in values or "sbert_ce_default_activation_function" in values
        length = min(DEFAULT_MAX_LENGTH, config.max_positions)
        return {"length": length, "most": 1.0} if is_cross_encoder and len(config.labels) == 1 else None

    def encode(self, record: Record, labeled: bool = True) -> list[Example]:
        """Return an example per passage.

        For the listwise loss, return an example per relevant passage; its `grouped_rows` are the passages with a lower grade.
        """
        if not record["passages"]:
            raise UserError(
                f"{record.get('location', record['query'])}: there are no passages to rank",
                hint='unmask predict MODEL "query" "passage" "passage" …',
            )
        query = self.tokenizer.encode(record["query"])
        passages = [self.tokenizer.encode(text) for text in record["passages"]]
        max_tokens = self.windowing.max_text_tokens(pair=True)
        lengths = [len(query) + len(ids) for ids in passages]
        first_too_long = next((n for n, length in enumerate(lengths, 1) if length > max_tokens), 0)
        self.windowing.check_overflow(record, lengths, max_tokens, f"passage {first_too_long}")
        rows = []
        for n, (ids, passage) in enumerate(zip(passages, record["passages"])):
            sequence, segments = self.tokenizer.build_inputs_with_special_tokens(*truncate_pair(query, ids, max_tokens))
            texts = (record["query"], passage)
            rows.append(Example(np.array(sequence), np.array(segments), texts=texts, metadata=n))
        if not labeled:
            return rows
        grades = record["relevance"]
        if self.settings.rank.loss == "pointwise":
            for row, grade in zip(rows, grades):
                row.labels = {"rank.targets": np.array([max(0.0, grade) / self.task_state["most"]])}
            return rows
        examples = []
        for row, grade in zip(rows, grades):
            less_relevant = [other for other, other_grade in zip(rows, grades) if other_grade < grade]
            if grade > 0 and less_relevant:
                labels = {"rank.targets": np.array([0])}  # the relevant passage is the first of its group
                examples.append(replace(row, labels=labels, grouped_rows=less_relevant))
        return examples

    # ------------------------------------------------------------------------------------------- predictions

    def decode(self, outputs: Outputs) -> list[Prediction]:
        """Return for each record a score per passage (`scores`), and the indices of the passages, best first (`order`)."""
        values = np.array([float(v) for v in outputs.values])
        by_record = np.split(values, np.flatnonzero(np.diff(outputs.record_index)) + 1) if len(values) else []
        return [{"scores": scores.tolist(), "order": rank_order(scores).tolist()} for scores in by_record]

    def score(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        return mean_metrics([_query_metrics(p, r) for p, r in zip(predictions, records, strict=True)])

    def details(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, Any]:
        errors: list[dict[str, Any]] = []
        correct: list[dict[str, Any]] = []
        for prediction, record in zip(predictions, records):
            best, grades = prediction["order"][0], record["relevance"]
            row = {
                "location": record["location"],
                "text": record["query"],
                "predicted": record["passages"][best],
                "expected": record["passages"][int(np.argmax(grades))],
                "score": _query_metrics(prediction, record)["ndcg@10"],
            }
            (correct if grades[best] > 0 else errors).append(row)
        worst = sorted(errors, key=lambda row: row["score"])[:MAX_ERRORS_SHOWN]
        return {"errors": worst, "examples": correct[:MAX_EXAMPLES_SHOWN]}


def _query_metrics(prediction: Prediction, record: Record) -> dict[str, float]:
    """Return the metrics of one query. Ties are broken by passage id if the file has ids."""
    grades = np.asarray(record["relevance"], np.float64)
    return ranking_metrics(grades[rank_order(prediction["scores"], record.get("ids"))], grades)
