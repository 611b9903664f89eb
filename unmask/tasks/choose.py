"""Choosing one of several texts (BERT 1810.04805 §4.4, RACE 1704.04683): a number for each, a softmax over those of one question.

| record | rows: one for each choice | label |
|---|---|---|
| {"text", "choices": […], "label"} | [CLS] text [SEP] choice [SEP] | index of the right one |
| the same with "context" | [CLS] context [SEP] text choice [SEP] | |

Records may differ in how many choices they have; the rows of one stay in one batch (`Example.more`). In a row that is too long, the
longer part loses its end, which `longer` counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from unmask.batch import Batch, Example
from unmask.data.choices import NAMES, checked, columns_of, has_choices, label_all, listed
from unmask.data.records import Finding, Record, Source, assign, table_rows, text_of
from unmask.errors import UserError
from unmask.recipe import TaskRecipe
from unmask.tasks.details import cases
from unmask.tasks.rows import fit_pair
from unmask.tasks.task import Answer, Outputs, Task

if TYPE_CHECKING:
    import torch

    from unmask.model.model import Model


class Choose(Task):
    name = "choose"
    terms = ("choose",)
    heads = ("choose",)
    metric = "accuracy"
    roles: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "text": ("question", "text", "prompt", "sent2", "query", "goal", "sentence", "startphrase", "premise", "stem"),
        "context": ("context", "passage", "article", "sent1", "paragraph"),
        "choices": (*NAMES, "answers"),
        "label": ("label", "answer", "answerkey", "answer_key", "gold", "correct", "target", "answer_index", "gold_label"),
    }  # fmt: skip
    needed = ("text", "choices")
    target = ("label",)

    # ------------------------------------------------------------------------------------------------ files

    @classmethod
    def recognises(cls, source: Source) -> bool:
        names = {name.lower() for name in source.columns}
        text = names & {*cls.roles["text"], *cls.roles["context"]}
        return bool(text and names & set(cls.roles["label"])) and has_choices(source)

    @classmethod
    def read(cls, source: Source, settings: TaskRecipe, findings: list[Finding], labelled: bool = True) -> list[Record]:
        apart = columns_of(source.columns) if "choices" not in settings.columns else []
        roles = {role: names for role, names in cls.roles.items() if role != "choices" or not apart}
        left = [name for name in source.columns if name not in apart]
        plain = {name.lower() for name in left} & set(roles["text"]) or "text" in settings.columns
        if not plain:  # a file whose only text is called a context
            roles = roles | {"text": roles["context"], "context": ()}
        needed = ("text", *(() if apart else ("choices",)), *(cls.target if labelled else ()))
        columns = assign(left, roles, settings.columns, needed, source.path)
        records, labels = [], []
        for at, row in table_rows(source, "csv, tsv, jsonl or parquet with text, choices and label"):
            record: Record = {"at": at, "text": text_of(row.get(columns["text"]), at, "text", findings)}
            if columns.get("context") and row.get(columns["context"]) not in (None, ""):
                record["context"] = text_of(row[columns["context"]], at, "context", findings)
            names: list[str] = []
            if apart:
                cells = [row.get(name) for name in apart]
                while cells and cells[-1] in (None, ""):  # records differ in how many they have
                    cells.pop()
            else:
                cells, names = listed(row.get(columns["choices"])) or ([], [])
            record["choices"] = checked(cells, at, findings)
            records.append(record)
            labels.append((row.get(columns["label"]) if "label" in columns else None, names))
        if labelled or "label" in columns:
            label_all(records, labels, findings)
        return records

    @classmethod
    def ask(cls, *parts: Any) -> Record:
        text, choices = parts[0] if parts else "", list(parts[1:])
        if len(choices) in (1, 2) and isinstance(choices[0], list | tuple):
            record: Record = {"text": text, "choices": [str(c) for c in choices[0]]}
            record |= {"context": choices[1]} if len(choices) == 2 and choices[1] else {}
        else:
            record = {"text": text, "choices": [str(c) for c in choices]}
        if len(record["choices"]) < 2:
            raise UserError(
                f"{len(record['choices'])} choices", valid='a text and two choices or more: "2 + 2 =" "4" "5"'
            )
        return record

    def takes(self) -> tuple[int, int | None, str]:
        return 1, None, 'a text and two choices or more: "2 + 2 =" "4" "5"'

    # ----------------------------------------------------------------------------------------------- records

    @classmethod
    def together(cls, record: Record) -> list[tuple[str, ...]]:
        text, context = record["text"], record.get("context")
        return [(text, c) if context is None else (context, f"{text} {c}") for c in record["choices"]]

    def inseparable(self, record: Record) -> tuple[str, ...]:
        """Questions of one context stay together, as RACE's of one article."""
        return (record["context"],) if "context" in record else self.texts(record)

    def fate(self) -> str:
        return "refused" if self.settings.long == "refuse" else "cut at the end of the longer part"

    def encode(self, record: Record, labelled: bool = True) -> list[Example]:
        """A row for each choice; with a label, one example that holds them all."""
        t, room = self.tokenizer, self.room(pair=True)
        rows = self.together(record)
        first, *others = [e.ids for e in t.encode_batch([rows[0][0], *(second for _, second in rows)])]
        if max(len(first) + len(b) for b in others) > room:
            self.longer += 1
            if self.settings.long == "refuse":
                raise UserError(
                    f"{record.get('at', 'the text')}: more tokens than the {room:,} of a row",
                    fix="task.long=first cuts the longer part of a row",
                )
        pairs = [t.surround(*fit_pair(first, b, room)) for b in others]
        examples = [
            Example(np.array(ids), np.array(segments), about=choice)
            for (ids, segments), choice in zip(pairs, record["choices"])
        ]
        if not labelled:
            return examples
        head, *more = examples
        head.labels, head.more = {"label": np.array([record["label"]]), "choices": np.array([len(examples)])}, more
        return [head]

    def outputs(
        self, model: Model, hidden: torch.Tensor, batch: Batch
    ) -> Mapping[str, tuple[torch.Tensor, torch.Tensor]]:
        from torch.nn.utils.rnn import pad_sequence

        logits = model.logits("choose", hidden, batch.mask)  # (rows,)
        split = logits.float().split(batch.labels["choices"].tolist())
        table = pad_sequence(list(split), batch_first=True, padding_value=-np.inf)  # (records, most choices)
        return {"choose": (table, batch.labels["label"])}

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"choose": len(batch.labels["label"])}

    # ----------------------------------------------------------------------------------------------- answers

    def decode(self, outputs: Outputs) -> list[Answer]:
        answers: list[Answer] = []
        logits = np.array([float(value) for value in outputs.values])
        counts = np.bincount(outputs.record)
        for first, count in zip(np.cumsum(counts) - counts, counts):
            part = logits[first : first + count]
            shares = np.exp(part - part.max())
            shares /= shares.sum()
            best = int(part.argmax())
            text = outputs.examples[first + best].about
            answers.append(
                {"answer": text, "choice": best, "probability": float(shares[best]), "scores": shares.tolist()}
            )
        return answers

    def score(self, answers: Sequence[Answer], records: Sequence[Record]) -> dict[str, float]:
        """`mean_rank`: the place of the right choice, 1 = first; equal ones share the middle of their places."""
        right = [a["choice"] == r["label"] for a, r in zip(answers, records, strict=True)]
        ranks = [_rank(a["scores"], r["label"]) for a, r in zip(answers, records)]
        return {"accuracy": sum(right) / max(1, len(right)), "mean_rank": sum(ranks) / max(1, len(ranks))}

    def details(self, answers: Sequence[Answer], records: Sequence[Record]) -> dict[str, Any]:
        want = [r["choices"][r["label"]] for r in records]
        wrong = np.array([a["choice"] != r["label"] for a, r in zip(answers, records)], bool)
        sure = np.array([a["probability"] for a in answers])
        return cases(records, want, [a["answer"] for a in answers], wrong, sure)


def _rank(scores: Sequence[float], label: int) -> float:
    own = scores[label]
    return 1 + sum(s > own for s in scores) + (sum(s == own for s in scores) - 1) / 2
