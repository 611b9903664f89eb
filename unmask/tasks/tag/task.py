"""Token classification: a tag per word for entities, parts of speech (BERT 1810.04805 §5.3) or the roles of a predicate.

| record                                                    | sequence                           | tags                        |
|-----------------------------------------------------------|------------------------------------|-----------------------------|
| {"text": "in New York", "spans": [{start, end, label}]}   | [CLS] in new york [SEP]            | O B-loc I-loc               |
| the same with "words": [[start, end], …] and "tags"       | the words of the file are used     | of each word's first token  |
| the same with "predicate": [start, end]                   | [CLS] ann [SEP] runs [SEP] home [SEP] runs [SEP] | B-A0 O B-A4   |

A predicate is marked in the text, because its word may occur twice. It is also the second text of the sequence, so that every
window of a long text contains it (Shi & Lin 1904.05255).

Raw text is split into words as the training file is (`boundaries.py`). Metrics over the words of a file are too high for raw text
if other words are found there. `add_raw_text_predictions` therefore predicts from the text alone too, and `score` reports both.

Only the first token of a word has a target. A text that is too long is split into overlapping windows; the window in which a
word is farthest from an edge decides its tag. A word without tokens is outside ("O").

Predicted tags are always a valid sequence: the most likely tag of each word, read as conlleval and seqeval's default mode read
any sequence (an I- that cannot continue an entity starts one), and written again. So seqeval's default and strict mode agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from unmask.batch import Example
from unmask.errors import UserError
from unmask.labels.fields import labels_of
from unmask.labels.formats import entity_tables, roles, schemes
from unmask.labels.records import Record
from unmask.model.config import ModelConfig
from unmask.recipe import Recipe, TaskRecipe
from unmask.tasks.align import align, in_words, mark
from unmask.tasks.explain import Target, find
from unmask.tasks.spec import TaskSpec
from unmask.tasks.tag import entities
from unmask.tasks.tag.boundaries import Boundaries, WordOffsets, span_borders
from unmask.tasks.tag.details import details as tag_details
from unmask.tasks.tag.spec import SPEC
from unmask.tasks.task import Backend, DataSummary, FitContext, Outputs, Prediction, Task
from unmask.text.tokenizer import Tokenizer
from unmask.text.windows import word_windows

MAX_LABELS_SHOWN = 12  # in the description of a file


class Tag(Task):
    SPEC = SPEC

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer, task_state: Mapping[str, Any] | None = None):
        super().__init__(recipe, tokenizer, task_state)
        self.split = Boundaries(self.task_state.get("boundaries"))
        self._label2id = {name: n for n, name in enumerate(self.labels)}

    @property
    def labels(self) -> list[str]:
        return self.task_state.get("labels", [])

    @property
    def scheme(self) -> str:
        return self.task_state.get("scheme", "BIO")

    @property
    def labels_roles(self) -> bool:
        """Return whether the model labels the semantic roles of a predicate, which is then part of its input."""
        return bool(self.task_state.get("predicate"))

    @classmethod
    def make_spec(cls, settings: TaskRecipe, task_state: Mapping[str, Any], config: ModelConfig | None) -> TaskSpec:
        text, predicate = cls.SPEC.inputs
        metric = "token_accuracy" if task_state.get("scheme") == "none" else "f1"
        labels = tuple(task_state.get("labels", ()))
        values: dict[str, Any] = {"inputs": (text,), "input_description": "one text"}
        if task_state.get("predicate"):
            inputs = (text, replace(predicate, required=True))
            values = {"inputs": inputs, "num_inputs": (1, 2), "input_description": "a text and its predicate"}
        spec = replace(cls.SPEC, metrics=(metric,))
        return spec.bind(labels=labels, config_overrides={"labels": labels}, **values)

    @classmethod
    def fit_state(
        cls, context: FitContext, records: Sequence[Record], previous: Mapping[str, Any] | None = None
    ) -> DataSummary:
        task_state = super().fit_state(context, records, previous).task_state
        if previous is None:
            task_state |= cls._fit_labels(context.recipe, records)
        counts = Counter(label for r in records for label in labels_of(SPEC, r))
        listed = ", ".join(f"{label} {count:,}" for label, count in counts.most_common(MAX_LABELS_SHOWN))
        kind = "tags"
        if task_state["scheme"] != "none":
            kind = f"{'roles' if task_state.get('predicate') else 'entities'} ({task_state['scheme']})"
        return DataSummary(task_state, ["entities" if r.get("spans") else "" for r in records], f"{kind}: {listed}")

    @classmethod
    def _fit_labels(cls, recipe: Recipe, records: Sequence[Record]) -> dict[str, Any]:
        """Return the tags, their scheme, the word boundaries, and whether the records have predicates."""
        scheme: str = recipe.task.tag.scheme
        if scheme == "auto":
            tags = [r["tags"] for r in records if "tags" in r]
            scheme = schemes.detect_scheme(tags).replace("IOB1", "BIO") if tags else "BIO"
        occurring = sorted(
            {label for r in records for label in (r.get("tags", ()) if scheme == "none" else labels_of(SPEC, r))}
        )
        if not occurring:
            raise UserError("the training files contain no entities", expected=entity_tables.EXPECTED)
        labels = recipe.task.labels or occurring
        if scheme != "none" and schemes.OUTSIDE not in labels:
            labels = schemes.tag_names(labels, scheme)
        needed = occurring if scheme == "none" else schemes.tag_names(occurring, scheme)
        if missing := [name for name in needed if name not in labels]:
            raise UserError(
                f"{', '.join(missing[:10])} (scheme {scheme}) occur in the training files, but not in task.labels",
                expected=", ".join(needed),
                hint="list every label in --labels, or remove --labels to use those of the files",
            )
        task_state: dict[str, Any] = {"labels": labels, "scheme": scheme}
        boundaries = Boundaries.fit((r["text"], r["words"]) for r in records if "words" in r)
        task_state |= {"boundaries": boundaries} if boundaries else {}
        without_predicate = [r.get("location", "a record") for r in records if "predicate" not in r]
        if without_predicate and len(without_predicate) < len(records):
            raise UserError(
                f"{without_predicate[0]}: no predicate, but other records have one",
                hint="train on files with predicates or on files without, not on both",
            )
        return task_state | ({} if without_predicate else {"predicate": True})

    @classmethod
    def state_from_folder(cls, folder: Path, config: ModelConfig, heads: Collection[str]) -> dict[str, Any] | None:
        previous, labels = super().state_from_folder(folder, config, heads), list(config.labels)
        if previous is None:
            return None
        return previous | {"labels": labels, "scheme": schemes.scheme_of(labels), "boundaries": {}}

    def true_tags(self, record: Record, words: WordOffsets) -> list[str]:
        """Return the tags of a record for these words."""
        if ("tags" if self.scheme == "none" else "spans") not in record:
            kind = "tags of words" if self.scheme == "none" else f"entities ({self.scheme})"
            raise UserError(f"{record.get('location', 'the record')}: the model predicts {kind}, but the file has none")
        if self.scheme == "none":
            return list(record["tags"])
        return schemes.entities_to_tags(in_words(schemes.span_tuples(record["spans"]), words), len(words), self.scheme)

    def encode(self, record: Record, labeled: bool = True) -> list[Example]:
        text, words = record["text"], record.get("words")
        if words is None:
            words = self.split(text, span_borders(record) if labeled else ())
        ids, first_token = align(self.tokenizer, text, words)
        predicate_ids: list[int] | None = None
        max_tokens = self.windowing.max_text_tokens()
        if predicate := self._predicate_span(record):
            ids, first_token = mark(ids, first_token, words, predicate, self.tokenizer.sep)
            max_tokens = self.windowing.max_text_tokens(pair=True)
            predicate_ids = self.tokenizer.encode(text[slice(*predicate)])[: max_tokens // 4]
            max_tokens -= len(predicate_ids)
        self.windowing.check_overflow(record, [len(ids)], max_tokens)
        if self.windowing.overflow == "truncate":
            ids, first_token = ids[:max_tokens], np.where(first_token < max_tokens, first_token, -1)
        windows, window_of_word = word_windows(len(ids), first_token, max_tokens)
        num_before = len(self.tokenizer.special_token_layout[predicate_ids is not None][0])  # special tokens
        targets = (
            np.array([self._label2id[tag] for tag in self.true_tags(record, words)], np.int64) if labeled else None
        )
        texts = (text,) if predicate is None else (text, text[slice(*predicate)])
        examples = []
        for k, (start, end) in enumerate(windows):
            sequence, segments = self.tokenizer.build_inputs_with_special_tokens(ids[start:end], predicate_ids)
            decided = np.flatnonzero(window_of_word == k)  # the words whose tags this window decides
            positions = first_token[decided] - start + num_before
            labels = {} if targets is None else {"tag.positions": positions, "tag.targets": targets[decided]}
            metadata = (text, words, decided, positions)
            examples.append(
                Example(np.array(sequence), np.array(segments), labels=labels, texts=texts, metadata=metadata)
            )
        return examples

    def _predicate_span(self, record: Record) -> list[int] | None:
        """Return [start, end) of the predicate in characters, or None if the model does not label roles."""
        value = record.get("predicate")
        if self.labels_roles:
            try:
                return roles.locate_predicate(record["text"], value)
            except UserError as error:
                prefix = f"{record['location']}: " if "location" in record else ""
                raise UserError(prefix + error.message, expected=error.expected, hint=error.hint) from None
        if value is not None:
            raise UserError(
                f"{record.get('location', 'the record')}: a predicate was given, but the model was trained without predicates",
                hint="remove the predicate, or fine-tune on a file with predicates",
            )
        return None

    # ------------------------------------------------------------------------------------------- predictions

    def decode(self, outputs: Outputs) -> list[Prediction]:
        """Return tags and entities. The score of an entity is the mean probability of its label over its words."""
        windows: dict[int, list[tuple[np.ndarray, Any]]] = {}  # record → (logits, metadata) of its windows
        for record, values, example in zip(outputs.record_index.tolist(), outputs.values, outputs.examples):
            windows.setdefault(record, []).append((values, example.metadata))
        return [self._prediction(windows[record]) for record in sorted(windows)]

    def _prediction(self, windows: list[tuple[np.ndarray, Any]]) -> Prediction:
        text, words = windows[0][1][:2]
        probabilities = np.zeros((len(words), len(self.labels)))
        for values, (_, _, decided, positions) in windows:
            logits = values[positions].astype(np.float64)
            exp = np.exp(logits - logits.max(-1, keepdims=True)) if len(positions) else logits
            probabilities[decided] = exp / exp.sum(-1, keepdims=True)
        has_token = probabilities.sum(-1) > 0
        tags = [self.labels[n] if known else schemes.OUTSIDE for n, known in zip(probabilities.argmax(-1), has_token)]
        prediction: Prediction = {"tags": tags, "words": [list(w) for w in words]}
        prediction["score"] = float(probabilities[has_token].max(-1).mean()) if has_token.any() else 1.0
        if self.scheme == "none":
            return prediction
        label_of_tag = np.array([schemes.parse_tag(name)[1] for name in self.labels])
        word_spans = schemes.tags_to_entities(tags)
        prediction["tags"] = schemes.entities_to_tags(word_spans, len(words), self.scheme)
        listed = []
        for first, end, label in word_spans:
            start, stop = words[first][0], words[end - 1][1]
            score = float(probabilities[first:end][:, label_of_tag == label].sum(-1).mean())
            listed.append({"start": start, "end": stop, "label": label, "text": text[start:stop], "score": score})
        return {"entities": listed} | prediction

    def add_raw_text_predictions(
        self, model: Backend, predictions: Sequence[Prediction], records: Sequence[Record]
    ) -> list[Prediction]:
        """Add "raw" to each prediction: the prediction for the text alone, or None if its words are the same."""
        texts: list[Record] = [{key: r[key] for key in ("text", "predicate") if key in r} for r in records]
        differ = [
            n for n, (r, p) in enumerate(zip(texts, predictions, strict=True)) if self.split(r["text"]) != p["words"]
        ]
        raw = dict(zip(differ, self.predict(model, [texts[n] for n in differ])))
        return [p | {"raw": raw.get(n)} for n, p in enumerate(predictions)]

    def score(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        """Return the metrics; with `raw_text_f1` if `add_raw_text_predictions` has predicted from the text alone."""
        tags = [self.true_tags(r, p["words"]) for p, r in zip(predictions, records, strict=True)]
        out = {"token_accuracy": entities.accuracy(tags, [p["tags"] for p in predictions])}
        if self.scheme != "none":
            out = entities.scores(self.expected_spans(records), [self.predicted_spans(p) for p in predictions]) | out
        if any("raw" not in p for p in predictions):
            return out
        raw = entities.scores(self.expected_spans(records), [self.predicted_spans(p["raw"] or p) for p in predictions])
        return {"raw_text_f1": raw["f1"]} | out

    def expected_spans(self, records: Sequence[Record]) -> list[list[tuple[int, Any, str]]]:
        """Return (start, end, label) of the entities of each record; of its words without a scheme; or of its arguments."""
        if self.scheme != "none":
            return [self._scored_spans(r["spans"]) for r in records]
        return [[(a, b, tag) for (a, b), tag in zip(r["words"], r["tags"], strict=True)] for r in records]

    def predicted_spans(self, prediction: Prediction) -> list[tuple[int, Any, str]]:
        if self.scheme != "none":
            return self._scored_spans(prediction["entities"])
        return [(a, b, tag) for (a, b), tag in zip(prediction["words"], prediction["tags"], strict=True)]

    def _scored_spans(self, spans: Sequence[Mapping[str, Any]]) -> list[tuple[int, Any, str]]:
        tuples = schemes.span_tuples(spans)
        return roles.arguments(tuples) if self.labels_roles else [*tuples]

    def details(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, Any]:
        return tag_details(self, predictions, records)

    def explain_target(self, outputs: Outputs, record: Record, target: str | None) -> Target:
        """Explain the logit of a word's tag. `target` is WORD or WORD=TAG; by default, the entity with the highest score."""
        text = record["text"]
        if self.labels_roles:
            raise UserError(
                "explanations do not support models of semantic roles",
                expected="a model of entities or parts of speech",
            )
        (prediction,) = self.decode(outputs)
        words, tags = prediction["words"], prediction["tags"]
        if not words:
            raise UserError(f"the text has no words: {text!r:.60}", expected="a text with words to tag")
        target_word, _, target_tag = (target or "").partition("=")
        if target is None:
            entity = max(prediction.get("entities", []), key=lambda e: e["score"], default=None)
            index = next((n for n, (start, _) in enumerate(words) if entity and start == entity["start"]), 0)
        else:
            index = find(target_word, [text[a:b] for a, b in words], "word")
        _, _, decided, positions = outputs.examples[0].metadata
        position = dict(zip(decided.tolist(), positions.tolist())).get(index)
        word = text[slice(*words[index])]
        if position is None:
            raise UserError(f"the word {word!r} has no token", expected="a word that the tokenizer does not drop")
        name = self.labels[find(target_tag, self.labels, "tag")] if target_tag else tags[index]
        return Target(0, ((position, self.labels.index(name)),), f"{word}={name}")
