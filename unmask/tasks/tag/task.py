"""A tag for every word: entities, parts of speech (BERT 1810.04805 §5.3), or the semantic roles of a predicate.

| record                                                    | row                                | labels                      |
|-----------------------------------------------------------|------------------------------------|-----------------------------|
| {"text": "in New York", "spans": [{start, end, label}]}   | [CLS] in new york [SEP]            | O B-loc I-loc               |
| the same with "words": [[start, end], …] and "tags"       | the words of the file, not ours    | of each word's first token  |
| the same with "predicate": [start, end]                   | [CLS] ann [SEP] runs [SEP] home [SEP] runs [SEP] | B-A0 O B-A4   |

A predicate is marked where it stands, as its word may occur twice, and is the row's second text, so that every window of a long
text and every model, with segments or without, has it (Shi & Lin 1904.05255).

The words of a text without words are found as the training file has them (`tasks/tag/boundaries.py`). So a score over the file's words
says what raw text gets only as far as the same words are found: `add_raw_text_predictions` asks again, by the text alone, and `score` reports both.

Only the first token of a word is labelled and read. A text longer than a row is read in overlapping windows, and each word is decided in
the one where it stands most inside. A word of which the tokenizer makes nothing is outside ("O").

Answers are valid sequences: the likeliest tag of each word, read as conlleval and seqeval's default read any sequence (what cannot go
on begins a new entity) and written again. So the figures are the same by seqeval's default and by its strict mode.
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
from unmask.tasks.tag.boundaries import Boundaries
from unmask.tasks.tag.details import details as tag_details
from unmask.tasks.tag.spec import SPEC
from unmask.tasks.task import Backend, DataSummary, FitContext, Outputs, Prediction, Task
from unmask.text.tokenizer import Tokenizer
from unmask.text.windows import word_windows

Words = list[list[int]]


class Tag(Task):
    SPEC = SPEC

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer, task_state: Mapping[str, Any] | None = None):
        super().__init__(recipe, tokenizer, task_state)
        self.split = Boundaries(self.task_state.get("boundaries"))
        self._number = {name: n for n, name in enumerate(self.labels)}

    @property
    def labels(self) -> list[str]:
        return self.task_state.get("labels", [])

    @property
    def scheme(self) -> str:
        return self.task_state.get("scheme", "BIO")

    @property
    def roles_of_predicates(self) -> bool:
        """Whether it labels the roles of a predicate, which is then part of every question."""
        return bool(self.task_state.get("predicate"))

    @classmethod
    def make_spec(cls, settings: TaskRecipe, task_state: Mapping[str, Any], config: ModelConfig | None) -> TaskSpec:
        text, predicate = cls.SPEC.inputs
        labels, metric = (
            tuple(task_state.get("labels", ())),
            "token_accuracy" if task_state.get("scheme") == "none" else "f1",
        )
        spec = replace(cls.SPEC, metrics=(metric,))
        if not task_state.get("predicate"):
            return spec.bind(
                inputs=(text,), input_description="one text", labels=labels, config_overrides={"labels": labels}
            )
        required = replace(predicate, required=True)
        input_description, changed = "a text and its predicate", {"labels": labels}
        return spec.bind(
            inputs=(text, required),
            num_inputs=(1, 2),
            input_description=input_description,
            labels=labels,
            config_overrides=changed,
        )

    @classmethod
    def fit_state(
        cls, context: FitContext, records: Sequence[Record], previous: Mapping[str, Any] | None = None
    ) -> DataSummary:
        task_state = super().fit_state(context, records, previous).task_state
        task_state |= cls._learn(context.recipe, records) if previous is None else {}
        counts = Counter(label for r in records for label in labels_of(SPEC, r))
        shown = ", ".join(f"{label} {count:,}" for label, count in counts.most_common(12))
        what = "roles" if task_state.get("predicate") else "entities"
        kind = "tags" if task_state["scheme"] == "none" else f"{what} ({task_state['scheme']})"
        return DataSummary(task_state, ["entities" if r.get("spans") else "" for r in records], f"{kind}: {shown}")

    @classmethod
    def _learn(cls, recipe: Recipe, records: Sequence[Record]) -> dict[str, Any]:
        tags = [r["tags"] for r in records if "tags" in r]
        found = schemes.detect_scheme(tags).replace("IOB1", "BIO") if tags else "BIO"
        scheme = recipe.task.tag.scheme if recipe.task.tag.scheme != "auto" else found
        seen = sorted(
            {label for r in records for label in (r.get("tags", ()) if scheme == "none" else labels_of(SPEC, r))}
        )
        if not seen:
            raise UserError("no entity in the training files", expected=entity_tables.EXPECTED)
        labels = recipe.task.labels or seen
        if scheme != "none" and schemes.OUTSIDE not in labels:
            labels = schemes.tag_names(labels, scheme)
        wanted = seen if scheme == "none" else schemes.tag_names(seen, scheme)
        if strange := [name for name in wanted if name not in labels]:
            raise UserError(
                f"task.labels lacks {', '.join(strange[:10])}, which the training files have (scheme {scheme})",
                expected=", ".join(wanted),
            )
        task_state: dict[str, Any] = {"labels": labels, "scheme": scheme}
        boundaries = Boundaries.fit((r["text"], r["words"]) for r in records if "words" in r)
        task_state |= {"boundaries": boundaries} if boundaries else {}
        lacking = [r.get("location", "a record") for r in records if "predicate" not in r]
        if lacking and len(lacking) < len(records):
            raise UserError(
                f"{lacking[0]}: no predicate, where other records have one", hint="train on one kind of file"
            )
        return task_state | ({} if lacking else {"predicate": True})

    @classmethod
    def state_from_folder(cls, folder: Path, config: ModelConfig, heads: Collection[str]) -> dict[str, Any] | None:
        previous, labels = super().state_from_folder(folder, config, heads), list(config.labels)
        told = {"labels": labels, "scheme": schemes.scheme_of(labels), "boundaries": {}}
        return None if previous is None else previous | told

    def true_tags(self, record: Record, words: Words) -> list[str]:
        """The record's tags for these words."""
        if ("tags" if self.scheme == "none" else "spans") not in record:
            what = "tags of words" if self.scheme == "none" else f"entities ({self.scheme})"
            raise UserError(f"{record.get('location', 'the record')}: the model knows {what}, and the file has none")
        if self.scheme == "none":
            return list(record["tags"])
        return schemes.entities_to_tags(in_words(schemes.span_tuples(record["spans"]), words), len(words), self.scheme)

    def encode(self, record: Record, labelled: bool = True) -> list[Example]:
        text, words = record["text"], record.get("words")
        if words is None:
            borders = [at for s in record["spans"] for at in (s["start"], s["end"])] if labelled else []
            words = self.split(text, borders)
        ids, first = align(self.tokenizer, text, words)
        second: list[int] | None = None
        room = self.windowing.max_text_tokens()
        if predicate := self._predicate(record):
            ids, first = mark(ids, first, words, predicate, self.tokenizer.sep)
            room = self.windowing.max_text_tokens(pair=True)
            second = self.tokenizer.encode(text[slice(*predicate)])[: room // 4]
            room -= len(second)
        self.windowing.check_overflow(record, [len(ids)], room)
        if self.windowing.overflow == "truncate":
            ids, first = ids[:room], np.where(first < room, first, -1)
        cuts, deciding = word_windows(len(ids), first, room)
        before = len(self.tokenizer.special_token_layout[second is not None][0])
        numbers = np.array([self._number[tag] for tag in self.true_tags(record, words)], np.int64) if labelled else None
        texts = (text,) if predicate is None else (text, text[slice(*predicate)])
        rows = []
        for k, (start, end) in enumerate(cuts):
            row, segments = self.tokenizer.build_inputs_with_special_tokens(ids[start:end], second)
            own = np.flatnonzero(deciding == k)
            at = first[own] - start + before
            labels = {} if numbers is None else {"tag.positions": at, "tag.targets": numbers[own]}
            about = (text, words, own, at)
            rows.append(Example(np.array(row), np.array(segments), labels=labels, texts=texts, metadata=about))
        return rows

    def _predicate(self, record: Record) -> list[int] | None:
        """The characters of the record's predicate; None for a model of entities or parts of speech."""
        value = record.get("predicate")
        if self.roles_of_predicates:
            try:
                return roles.locate_predicate(record["text"], value)
            except UserError as error:
                where = f"{record['location']}: " if "location" in record else ""
                raise UserError(where + error.message, expected=error.expected, hint=error.hint) from None
        if value is not None:
            raise UserError(
                f"{record.get('location', 'the record')}: a predicate, for a model that was trained without any",
                hint="leave it out, or fine-tune on a file with predicates",
            )
        return None

    # ----------------------------------------------------------------------------------------------- answers

    def decode(self, outputs: Outputs) -> list[Prediction]:
        """Tags and entities; an entity's score is the mean over its words of the probability of its label."""
        rows: dict[int, list[int]] = {}
        for n, record in enumerate(outputs.record_index.tolist()):
            rows.setdefault(record, []).append(n)
        return [
            self._answer([(outputs.values[n], outputs.examples[n].metadata) for n in rows[r]]) for r in sorted(rows)
        ]

    def _answer(self, rows: list[tuple[np.ndarray, Any]]) -> Prediction:
        text, words = rows[0][1][:2]
        shares = np.zeros((len(words), len(self.labels)))
        for values, (_, _, own, at) in rows:
            logits = values[at].astype(np.float64)
            logits = np.exp(logits - logits.max(-1, keepdims=True)) if len(at) else logits
            shares[own] = logits / logits.sum(-1, keepdims=True)
        read = shares.sum(-1) > 0
        tags = [self.labels[n] if r else schemes.OUTSIDE for n, r in zip(shares.argmax(-1), read)]
        prediction: Prediction = {"tags": tags, "words": [list(w) for w in words]}
        prediction["score"] = float(shares[read].max(-1).mean()) if read.any() else 1.0
        if self.scheme == "none":
            return prediction
        found = schemes.tags_to_entities(tags)
        names = np.array([schemes.parse_tag(name)[1] for name in self.labels])
        prediction["tags"] = schemes.entities_to_tags(found, len(words), self.scheme)
        listed = []
        for first, end, label in found:
            start, stop = words[first][0], words[end - 1][1]
            share = float(shares[first:end][:, names == label].sum(-1).mean())
            listed.append({"start": start, "end": stop, "label": label, "text": text[start:stop], "score": share})
        return {"entities": listed} | prediction

    def add_raw_text_predictions(
        self, model: Backend, predictions: Sequence[Prediction], records: Sequence[Record]
    ) -> list[Prediction]:
        """Each answer with "raw": the answer to the text alone, None where it has the same words."""
        texts: list[Record] = [{key: r[key] for key in ("text", "predicate") if key in r} for r in records]
        other = [
            n for n, (r, a) in enumerate(zip(texts, predictions, strict=True)) if self.split(r["text"]) != a["words"]
        ]
        raw = dict(zip(other, self.predict(model, [texts[n] for n in other])))
        return [a | {"raw": raw.get(n)} for n, a in enumerate(predictions)]

    def score(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        """With `raw_text_f1`, where `add_raw_text_predictions` has asked: of words and their tags, or of entities, found in the text alone."""
        tags = [self.true_tags(r, a["words"]) for a, r in zip(predictions, records, strict=True)]
        out = {"token_accuracy": entities.accuracy(tags, [a["tags"] for a in predictions])}
        if self.scheme != "none":
            out = entities.scores(self.expected_spans(records), [self.predicted_spans(a) for a in predictions]) | out
        if any("raw" not in a for a in predictions):
            return out
        raw = entities.scores(self.expected_spans(records), [self.predicted_spans(a["raw"] or a) for a in predictions])
        return {"raw_text_f1": raw["f1"]} | out

    def expected_spans(self, records: Sequence[Record]) -> list[list[tuple[int, Any, str]]]:
        """(start, end, label) of each record's entities; with the scheme none, of its words; or arguments (`roles.py`)."""
        if self.scheme != "none":
            return [self._counted(r["spans"]) for r in records]
        return [[(a, b, tag) for (a, b), tag in zip(r["words"], r["tags"], strict=True)] for r in records]

    def predicted_spans(self, prediction: Prediction) -> list[tuple[int, Any, str]]:
        if self.scheme != "none":
            return self._counted(prediction["entities"])
        return [(a, b, tag) for (a, b), tag in zip(prediction["words"], prediction["tags"], strict=True)]

    def _counted(self, spans: Sequence[Mapping[str, Any]]) -> list[tuple[int, Any, str]]:
        return (
            roles.arguments(schemes.span_tuples(spans)) if self.roles_of_predicates else [*schemes.span_tuples(spans)]
        )

    def details(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, Any]:
        return tag_details(self, predictions, records)

    def explain_target(self, outputs: Outputs, record: Record, target: str | None) -> Target:
        """The logit of a word's tag: of the surest entity, or of `target`, a word of the text, or WORD=TAG."""
        text = record["text"]
        if self.roles_of_predicates:
            raise UserError(
                "the roles of a predicate cannot be explained", expected="a model of entities or parts of speech"
            )
        (prediction,) = self.decode(outputs)
        words, tags = prediction["words"], prediction["tags"]
        if not words:
            raise UserError(f"no word in the text: {text!r:.60}", expected="a text with words to tag")
        wanted, _, tag = (target or "").partition("=")
        if target is None:
            entity = max(prediction.get("entities", []), key=lambda e: e["score"], default=None)
            number = next((n for n, (a, _) in enumerate(words) if entity and a == entity["start"]), 0)
        else:
            number = find(wanted, [text[a:b] for a, b in words], "word")
        row = outputs.examples[0]
        place = {int(w): int(at) for w, at in zip(*row.metadata[2:])}.get(number)
        shown = text[slice(*words[number])]
        if place is None:
            raise UserError(f"the word {shown!r} has no token", expected="a word of known characters")
        name = self.labels[find(tag, self.labels, "tag")] if tag else tags[number]
        return Target(0, ((place, self.labels.index(name)),), f"{shown}={name}")
