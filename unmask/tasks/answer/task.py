"""Answers as spans of a passage (BERT 1810.04805 §4.2, §4.3): where an answer begins and where it ends, or that there is none.

| record | row | label |
|---|---|---|
| {"question", "context", "answers": [{"text", "start"}]} | [CLS] question [SEP] window of the context [SEP] | first and last token |
| the same with "impossible", or whose answer is not whole in the window | | [CLS], twice |

Windows of a long context overlap by `stride` tokens. The best span over all windows is the answer; its score is the sum of its two logits
minus the null score, the smallest sum of [CLS]'s two over the windows (as in BERT's own run_squad). Where questions may have no answer, none
is given when null − span is above a threshold, which is tuned on the dev set.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unmask.batch import Batch, Example
from unmask.errors import UserError
from unmask.labels.records import Finding, Record
from unmask.model.config import ModelConfig
from unmask.recipe import Recipe, TaskRecipe
from unmask.tasks import task as base
from unmask.tasks.answer import spans
from unmask.tasks.answer.spec import SPEC
from unmask.tasks.details import errors_and_examples
from unmask.tasks.explain import Target
from unmask.tasks.spec import TaskSpec
from unmask.text.segmentation import detect_common_language
from unmask.text.tokenizer import Tokenizer
from unmask.text.windows import strided_starts

if TYPE_CHECKING:
    from unmask.model.model import Model
    from unmask.tasks.terms import Term

TOP = 3  # candidates per answer
LONGEST = 30  # tokens of an answer that are always allowed, unless task.answer.max_answer_length says otherwise
LOST = "answers are made of characters that the tokenizer drops: learnt as no answer"
EDGES = 2  # a context may split the first and the last word of an answer otherwise than the answer alone


class Answer(base.Task):
    SPEC = SPEC

    def __init__(self, recipe: Recipe, tokenizer: Any, task_state: Mapping[str, Any] | None = None):
        super().__init__(recipe, tokenizer, task_state)
        self._last: tuple[str, list[int], np.ndarray] = ("", [], np.empty((0, 2), np.int64))

    @classmethod
    def make_spec(cls, settings: TaskRecipe, task_state: Mapping[str, Any], config: ModelConfig | None) -> TaskSpec:
        spec = replace(cls.SPEC, metrics=("zh_f1",) if task_state.get("chinese") else ("f1",))
        return spec.bind(input_description='a question and a context: "who?" "It was Ann."', text_pairs=True)

    # ----------------------------------------------------------------------------------------------- records

    @classmethod
    def fit_state(
        cls, context: base.FitContext, records: Sequence[Record], previous: Mapping[str, Any] | None = None
    ) -> base.DataSummary:
        settings, task_state = context.recipe.task.answer, super().fit_state(context, records, previous).task_state
        if previous is None:
            none = (
                any(r["impossible"] for r in records)
                if settings.allow_no_answer == "auto"
                else settings.allow_no_answer == "yes"
            )
            chinese = detect_common_language(r["question"] for r in records) == "zh"
            task_state |= {"none": none, "threshold": 0.0 if none else None, "chinese": chinese}
            if not settings.max_answer_length:
                most = max((size for _, size in _sizes(context.tokenizer, records)), default=0)
                task_state["longest"] = min(task_state["length"], max(LONGEST, most + EDGES))
        longest = settings.max_answer_length or task_state.get("longest") or LONGEST
        found = _too_large(_sizes(context.tokenizer, [*records, *context.eval_records]), longest, task_state["length"])
        return base.DataSummary(
            task_state, ["none" if r.get("impossible") else "some" for r in records], findings=found
        )

    @classmethod
    def state_from_folder(cls, folder: Path, config: ModelConfig, heads: Collection[str]) -> dict[str, Any] | None:
        previous = super().state_from_folder(folder, config, heads)
        return None if previous is None else previous | {"none": True, "threshold": 0.0, "chinese": False}

    @property
    def longest(self) -> int:
        """Tokens of an answer, at most."""
        return self.settings.answer.max_answer_length or self.task_state.get("longest") or LONGEST

    def encode(self, record: Record, labelled: bool = True) -> list[Example]:
        t, room = self.tokenizer, self.windowing.max_text_tokens(pair=True)
        question = t.encode(record["question"])
        if len(question) > room // 2:
            told = f"questions are longer than half of a row of {self.windowing.length}: cut at their end"
            self.windowing.tally.other_counts[told] += 1
            question = question[: room // 2]
        ids, offsets = self._tokens(record["context"])
        size = room - len(question)
        self.windowing.check_overflow(record, [len(ids)], size, "the context")
        span = self._span(record, offsets) if labelled else None
        starts = strided_starts(len(ids), size, min(self.settings.answer.doc_stride, size // 2))
        before, between, _ = t.special_token_layout[1]
        texts = (record["question"], record["context"])
        first, rows = len(before) + len(question) + len(between), []
        for start in starts[:1] if self.windowing.overflow == "truncate" else starts:
            row, segments = t.build_inputs_with_special_tokens(question, ids[start : start + size])
            whole = span and start <= span[0] and span[1] < start + size
            ends = [first + n - start for n in span] if span and whole else [0, 0]
            labels = {"start.targets": np.array(ends[:1]), "end.targets": np.array(ends[1:])} if labelled else {}
            about = spans.Window(record["context"], offsets[start : start + size], first)
            rows.append(Example(np.array(row), np.array(segments), labels=labels, texts=texts, metadata=about))
        return rows

    def _tokens(self, context: str) -> tuple[list[int], np.ndarray]:
        """Ids and places; questions of one context mostly follow each other."""
        if self._last[0] != context:
            (encoding,) = self.tokenizer.encode_batch([context])
            self._last = (context, encoding.ids, spans.trim_offsets(context, encoding.offsets))
        return self._last[1:]

    def _span(self, record: Record, offsets: np.ndarray) -> tuple[int, int] | None:
        if not record["answers"]:
            return None
        start = record["answers"][0]["start"]  # of several, the first is learnt
        span = spans.token_span(offsets, start, start + len(record["answers"][0]["text"]))
        if span is None:
            self.windowing.tally.other_counts[LOST] += 1
        return span

    def loss_terms(self, model: Model, batch: Batch) -> dict[str, Term]:
        """Any token of the row may be chosen, those of the question too; padding may not, so a row's loss is its own."""
        from unmask.tasks.terms import CrossEntropy

        logits = self.forward(model, batch)  # (B, T, 2)
        if batch.attention_mask is not None:
            logits = logits.masked_fill(~batch.attention_mask[:, :, None], -np.inf)
        return {
            term: CrossEntropy(logits=logits[:, :, n], targets=batch.labels[f"{term}.targets"])
            for n, term in enumerate(self.SPEC.terms)
        }

    # ----------------------------------------------------------------------------------------------- answers

    def decode(self, outputs: base.Outputs) -> list[base.Prediction]:
        windows = [example.metadata for example in outputs.examples]
        found = spans.collect_candidates(outputs.values, windows, outputs.record_index, self.longest, TOP)
        return [self._answer(each) for each in found]

    def _answer(self, found: spans.SpanCandidates) -> base.Prediction:
        """Probabilities are shares of exp over all spans of all windows and, where there may be no answer, of the null score."""
        threshold, null = self.task_state["threshold"], found.null
        everything = found.total if threshold is None else float(np.logaddexp(found.total, null))
        ordered = sorted(found.places.items(), key=lambda item: (-item[1], item[0]))[:TOP]
        candidates: list[base.Prediction] = [
            {"answer": found.context[start:end], "start": start, "end": end, "score": score - null,
             "probability": float(np.exp(score - everything))}
            for (start, end), score in ordered
        ]  # fmt: skip
        if candidates and (threshold is None or -candidates[0]["score"] <= threshold):
            return {**candidates[0], "candidates": candidates}
        score = candidates[0]["score"] if candidates else 0.0
        share = float(np.exp(null - everything)) if threshold is not None else 0.0
        none = {"answer": "", "start": None, "end": None, "score": score, "probability": share}
        return none | {"candidates": candidates}

    def calibrate(self, outputs: base.Outputs, records: Sequence[Record]) -> dict[str, Any]:
        return {} if self.task_state["threshold"] is None else self.fit_null_threshold(self.decode(outputs), records)

    def fit_null_threshold(self, predictions: Sequence[base.Prediction], records: Sequence[Record]) -> dict[str, Any]:
        """The threshold with which these answers would score best."""
        has = np.array([bool(r["answers"]) for r in records])
        if self.task_state["threshold"] is None or has.all() or not has.any():
            return {}
        answers, none = _best(predictions)
        values = spans.per_question_scores(answers, _golds(records))[self.spec.metric()]
        answered = np.array([bool(a) for a in answers])
        return {"threshold": spans.best_threshold(values, np.array(none), answered, has, reachable=True)[1]}

    def score(self, predictions: Sequence[base.Prediction], records: Sequence[Record]) -> dict[str, float]:
        chinese = self.task_state.get("chinese") or detect_common_language(r["question"] for r in records) == "zh"
        return spans.squad_scores(*_best(predictions), _golds(records), self.task_state["threshold"], chinese)

    def details(self, predictions: Sequence[base.Prediction], records: Sequence[Record]) -> dict[str, Any]:
        golds, predicted = _golds(records), [a["answer"] for a in predictions]
        wrong = spans.per_question_scores(predicted, golds)[self.spec.metric()] < 1
        asked = [{"location": r.get("location", ""), "text": r["question"]} for r in records]
        expected = [" | ".join(dict.fromkeys(gold)) or "(no answer)" for gold in golds]
        sure = np.array([a["probability"] for a in predictions])
        return errors_and_examples(asked, expected, [text or "(no answer)" for text in predicted], wrong, sure)

    def explain_target(self, outputs: base.Outputs, record: Record, target: str | None) -> Target:
        """The logits of an answer's first and last token: of the model's own, or of a part of the context."""
        context = record["context"]
        if target is None:
            (found,) = self.decode(outputs)
            found = found if found["answer"] else (found["candidates"] or [found])[0]
            if not found["answer"]:
                raise UserError("the model gives no answer to explain", hint='target="…", a part of the context')
            start, end = found["start"], found["end"]
        else:
            start = context.find(target)
            if start < 0 or not target:
                raise UserError(
                    f"the target {target!r} is not in the context", expected="a part of it, exactly as it stands"
                )
            end = start + len(target)
        window = outputs.examples[0].metadata
        own = [n for n, (a, b) in enumerate(window.offsets.tolist(), window.first) if a < end and b > start]
        if not own:
            raise UserError(f"the target {target!r} has no token", expected="a part of known characters")
        return Target(0, ((own[0], 0), (own[-1], 1)), context[start:end])


def _sizes(tokenizer: Tokenizer, records: Sequence[Record]) -> list[tuple[Record, int]]:
    """Records that have an answer, with the tokens of the one that is learnt."""
    some = [record for record in records if record["answers"]]
    encodings = tokenizer.encode_batch([record["answers"][0]["text"] for record in some])
    return [(record, len(encoding.ids)) for record, encoding in zip(some, encodings)]


def _too_large(sizes: Sequence[tuple[Record, int]], longest: int, length: int) -> list[Finding]:
    """Answers that cannot be given whole, as one finding."""
    over = [(record, size) for record, size in sizes if size > longest]
    if not over:
        return []
    most = max(size for _, size in over)
    limit = "a row" if longest >= length else "task.answer.max_answer_length"
    what = (
        f"{len(over):,} of {len(sizes):,} answers have more than the {longest:,} tokens of {limit}, "
        f"the longest {most:,}: they are never given whole"
    )
    hint = (
        f"--set task.answer.max_answer_length={most + EDGES}"
        if limit != "a row"
        else "--max-length N, or shorter answers"
    )
    return [Finding(over[0][0]["location"], what, hint, error=False, kind="answer length")]


def _best(predictions: Sequence[base.Prediction]) -> tuple[list[str], list[float]]:
    """What would be said if something had to be, and how much "no answer" is preferred to it."""
    texts = [a["candidates"][0]["answer"] if a.get("candidates") else a["answer"] for a in predictions]
    return texts, [-a["score"] for a in predictions]


def _golds(records: Sequence[Record]) -> list[list[str]]:
    return [[a["text"] for a in r["answers"]] for r in records]
