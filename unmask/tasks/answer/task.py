"""Extractive question answering (BERT 1810.04805 §4.2, §4.3): predict the first and the last token of the answer, or no answer.

| record | sequence | targets (start, end) |
|---|---|---|
| {"question", "context", "answers": [{"text", "start"}]} | [CLS] question [SEP] window of the context [SEP] | first and last token |
| the same with "impossible", or with an answer that is not entirely in the window | | [CLS], [CLS] |

Windows of a long context overlap by `doc_stride` tokens. The prediction is the best span over all windows. Its score is the sum
of its two logits minus the null score, the smallest sum of the two [CLS] logits over the windows (as in BERT's run_squad). If
questions may be unanswerable, the prediction is "no answer" if null − span is above a threshold, which is fitted on the dev set.
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

NUM_CANDIDATES = 3  # per prediction
MIN_MAX_ANSWER_LENGTH = 30  # tokens: smallest automatic value of task.answer.max_answer_length
EXTRA_TOKENS = (
    2  # the first and the last word of an answer may have one more token in the context than in the answer alone
)
NO_TOKENS = "answers consist of characters that the tokenizer drops, so they are trained as unanswerable"


class Answer(base.Task):
    SPEC = SPEC

    def __init__(self, recipe: Recipe, tokenizer: Any, task_state: Mapping[str, Any] | None = None):
        super().__init__(recipe, tokenizer, task_state)
        self._last_context: tuple[str, list[int], np.ndarray] = ("", [], np.empty((0, 2), np.int64))

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
            allow_none = settings.allow_no_answer == "yes"
            if settings.allow_no_answer == "auto":
                allow_none = any(r["impossible"] for r in records)
            chinese = detect_common_language(r["question"] for r in records) == "zh"
            task_state |= {"none": allow_none, "threshold": 0.0 if allow_none else None, "chinese": chinese}
            if not settings.max_answer_length:
                longest = max((length for _, length in _answer_lengths(context.tokenizer, records)), default=0)
                task_state["longest"] = min(task_state["length"], max(MIN_MAX_ANSWER_LENGTH, longest + EXTRA_TOKENS))
        lengths = _answer_lengths(context.tokenizer, [*records, *context.eval_records])
        findings = _length_findings(lengths, _max_answer_length(context.recipe.task, task_state), task_state["length"])
        strata = ["none" if r.get("impossible") else "some" for r in records]
        return base.DataSummary(task_state, strata, findings=findings)

    @classmethod
    def state_from_folder(cls, folder: Path, config: ModelConfig, heads: Collection[str]) -> dict[str, Any] | None:
        previous = super().state_from_folder(folder, config, heads)
        return None if previous is None else previous | {"none": True, "threshold": 0.0, "chinese": False}

    @property
    def max_answer_length(self) -> int:
        """Return the maximum number of tokens of an answer."""
        return _max_answer_length(self.settings, self.task_state)

    def encode(self, record: Record, labeled: bool = True) -> list[Example]:
        tokenizer, max_tokens = self.tokenizer, self.windowing.max_text_tokens(pair=True)
        question = tokenizer.encode(record["question"])
        if len(question) > max_tokens // 2:
            note = f"questions are longer than half of a row of {self.windowing.length}: cut at their end"
            self.windowing.tally.other_counts[note] += 1
            question = question[: max_tokens // 2]
        ids, offsets = self._tokenize_context(record["context"])
        window_size = max_tokens - len(question)
        self.windowing.check_overflow(record, [len(ids)], window_size, "the context")
        span = self._answer_span(record, offsets) if labeled else None
        starts = strided_starts(len(ids), window_size, min(self.settings.answer.doc_stride, window_size // 2))
        if self.windowing.overflow == "truncate":
            starts = starts[:1]
        before, between, _ = tokenizer.special_token_layout[1]
        first_position = len(before) + len(question) + len(between)  # position of the window in the sequence
        texts, examples = (record["question"], record["context"]), []
        for start in starts:
            end = start + window_size
            sequence, segments = tokenizer.build_inputs_with_special_tokens(question, ids[start:end])
            targets = [0, 0]  # [CLS]: the answer is not entirely in this window
            if span and start <= span[0] and span[1] < end:
                targets = [first_position + n - start for n in span]
            labels = {"start.targets": np.array(targets[:1]), "end.targets": np.array(targets[1:])} if labeled else {}
            window = spans.Window(record["context"], offsets[start:end], first_position)
            examples.append(
                Example(np.array(sequence), np.array(segments), labels=labels, texts=texts, metadata=window)
            )
        return examples

    def _tokenize_context(self, context: str) -> tuple[list[int], np.ndarray]:
        """Return ids and offsets. The last result is kept, because consecutive questions mostly share their context."""
        if self._last_context[0] != context:
            (encoding,) = self.tokenizer.encode_batch([context])
            self._last_context = (context, encoding.ids, spans.trim_offsets(context, encoding.offsets))
        return self._last_context[1:]

    def _answer_span(self, record: Record, offsets: np.ndarray) -> tuple[int, int] | None:
        """Return the first and the last token of the first answer; the model is trained on it alone."""
        if not record["answers"]:
            return None
        start = record["answers"][0]["start"]
        span = spans.token_span(offsets, start, start + len(record["answers"][0]["text"]))
        if span is None:
            self.windowing.tally.other_counts[NO_TOKENS] += 1
        return span

    def loss_terms(self, model: Model, batch: Batch) -> dict[str, Term]:
        """Mask the padding, so that the loss of an example does not depend on its batch. All other tokens are classes."""
        from unmask.tasks.terms import CrossEntropy

        logits = self.forward(model, batch)  # (B, T, 2)
        if batch.attention_mask is not None:
            logits = logits.masked_fill(~batch.attention_mask[:, :, None], -np.inf)
        return {
            term: CrossEntropy(logits=logits[:, :, n], targets=batch.labels[f"{term}.targets"])
            for n, term in enumerate(self.SPEC.terms)
        }

    # ------------------------------------------------------------------------------------------- predictions

    def decode(self, outputs: base.Outputs) -> list[base.Prediction]:
        windows = [example.metadata for example in outputs.examples]
        by_record = spans.collect_candidates(
            outputs.values, windows, outputs.record_index, self.max_answer_length, NUM_CANDIDATES
        )
        return [self._prediction(record) for record in by_record]

    def _prediction(self, record: spans.SpanCandidates) -> base.Prediction:
        """Return the best span or "no answer".

        Probabilities are a softmax over all spans of all windows, and over the null score if questions may be unanswerable.
        """
        threshold, null_score = self.task_state["threshold"], record.null_score
        normalizer = record.total if threshold is None else float(np.logaddexp(record.total, null_score))
        best = sorted(record.spans.items(), key=lambda item: (-item[1], item[0]))[:NUM_CANDIDATES]
        candidates: list[base.Prediction] = [
            {"answer": record.context[start:end], "start": start, "end": end, "score": score - null_score,
             "probability": float(np.exp(score - normalizer))}
            for (start, end), score in best
        ]  # fmt: skip
        if candidates and (threshold is None or -candidates[0]["score"] <= threshold):
            return {**candidates[0], "candidates": candidates}
        score = candidates[0]["score"] if candidates else 0.0
        probability = float(np.exp(null_score - normalizer)) if threshold is not None else 0.0
        no_answer = {"answer": "", "start": None, "end": None, "score": score, "probability": probability}
        return no_answer | {"candidates": candidates}

    def calibrate(self, outputs: base.Outputs, records: Sequence[Record]) -> dict[str, Any]:
        return {} if self.task_state["threshold"] is None else self.fit_null_threshold(self.decode(outputs), records)

    def fit_null_threshold(self, predictions: Sequence[base.Prediction], records: Sequence[Record]) -> dict[str, Any]:
        """Return the threshold that maximizes the metric. It needs both answerable and unanswerable questions; else return {}."""
        has_answer = np.array([bool(r["answers"]) for r in records])
        if self.task_state["threshold"] is None or has_answer.all() or not has_answer.any():
            return {}
        answers, null_scores = _forced_answers(predictions)
        values = spans.per_question_scores(answers, _golds(records))[self.spec.metric()]
        answered = np.array([bool(a) for a in answers])
        best = spans.best_null_threshold(values, np.array(null_scores), answered, has_answer, reachable=True)
        return {"threshold": best[1]}

    def score(self, predictions: Sequence[base.Prediction], records: Sequence[Record]) -> dict[str, float]:
        chinese = self.task_state.get("chinese") or detect_common_language(r["question"] for r in records) == "zh"
        return spans.squad_scores(*_forced_answers(predictions), _golds(records), self.task_state["threshold"], chinese)

    def details(self, predictions: Sequence[base.Prediction], records: Sequence[Record]) -> dict[str, Any]:
        golds, predicted = _golds(records), [a["answer"] for a in predictions]
        wrong = spans.per_question_scores(predicted, golds)[self.spec.metric()] < 1
        questions = [{"location": r.get("location", ""), "text": r["question"]} for r in records]
        expected = [" | ".join(dict.fromkeys(gold)) or "(no answer)" for gold in golds]
        confidence = np.array([a["probability"] for a in predictions])
        return errors_and_examples(
            questions, expected, [text or "(no answer)" for text in predicted], wrong, confidence
        )

    def explain_target(self, outputs: base.Outputs, record: Record, target: str | None) -> Target:
        """Explain the start and end logits of the predicted answer, or of `target`, a part of the context."""
        context = record["context"]
        if target is None:
            (prediction,) = self.decode(outputs)
            if not prediction["answer"] and prediction["candidates"]:
                prediction = prediction["candidates"][0]
            if not prediction["answer"]:
                raise UserError(
                    "the model predicts no answer that could be explained",
                    hint='pass target="…", a part of the context',
                )
            start, end = prediction["start"], prediction["end"]
        else:
            start = context.find(target)
            if start < 0 or not target:
                raise UserError(
                    f"the target {target!r} is not in the context", expected="a part of the context, copied exactly"
                )
            end = start + len(target)
        window = outputs.examples[0].metadata
        positions = [
            n for n, (a, b) in enumerate(window.offsets.tolist(), window.first_position) if a < end and b > start
        ]
        if not positions:
            raise UserError(
                f"the target {target!r} has no token", expected="a part of the context that the tokenizer does not drop"
            )
        return Target(0, ((positions[0], 0), (positions[-1], 1)), context[start:end])


def _max_answer_length(settings: TaskRecipe, task_state: Mapping[str, Any]) -> int:
    return settings.answer.max_answer_length or task_state.get("longest") or MIN_MAX_ANSWER_LENGTH


def _answer_lengths(tokenizer: Tokenizer, records: Sequence[Record]) -> list[tuple[Record, int]]:
    """Return the answerable records, each with the number of tokens of its first answer."""
    answerable = [record for record in records if record["answers"]]
    encodings = tokenizer.encode_batch([record["answers"][0]["text"] for record in answerable])
    return [(record, len(encoding.ids)) for record, encoding in zip(answerable, encodings)]


def _length_findings(lengths: Sequence[tuple[Record, int]], max_length: int, row_length: int) -> list[Finding]:
    """Warn about answers that are too long to be predicted, in one finding."""
    too_long = [(record, length) for record, length in lengths if length > max_length]
    if not too_long:
        return []
    longest = max(length for _, length in too_long)
    if max_length >= row_length:
        limit, hint = "the row length", "use a larger --max-length, or shorten the answers"
    else:
        limit = "task.answer.max_answer_length"
        hint = f"--set task.answer.max_answer_length={longest + EXTRA_TOKENS}"
    message = (
        f"{len(too_long):,} of {len(lengths):,} answers are longer than {limit} ({max_length:,} tokens): "
        f"they cannot be predicted in full; the longest has {longest:,} tokens"
    )
    return [Finding(too_long[0][0]["location"], message, hint, error=False, kind="answer length")]


def _forced_answers(predictions: Sequence[base.Prediction]) -> tuple[list[str], list[float]]:
    """Return the best answers, ignoring the threshold, and how much "no answer" is preferred to each."""
    texts = [a["candidates"][0]["answer"] if a.get("candidates") else a["answer"] for a in predictions]
    return texts, [-a["score"] for a in predictions]


def _golds(records: Sequence[Record]) -> list[list[str]]:
    return [[a["text"] for a in r["answers"]] for r in records]
