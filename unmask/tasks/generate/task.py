"""A text → a new one: a summary, a reply, a completion. One loss for three ways of writing, by what the model is:

| model                        | row                                      | the loss reads                            |
|------------------------------|------------------------------------------|-------------------------------------------|
| encoder–decoder (T5, BART)   | prefix text </s>; decoder: start target  | target </s> at the decoder                |
| causal (GPT, GPT-2)          | prefix text <end> target <end>           | target <end>, each after what is before it |
| encoder with an MLM head     | [CLS] prefix text [SEP] target [SEP]     | the same; `Example.prefix` ends after the first [SEP] |

Vocabulary logits exist at the target's tokens alone. An answer is written as generation_config.json says, with `task.generate.longest`
tokens at most and `task.generate.beams` beams. What is too long is cut at its end and counted (`long: refuse` refuses it): windows have no
meaning here. A target that is cut has no end token, so that nothing learns to stop there.

While training, answers are written to the first `seen` dev records only (`train.eval_rows` sets another number), at the end to all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unmask.batch import Example
from unmask.errors import UserError, quote
from unmask.hub import resolve
from unmask.labels.records import Record
from unmask.model.config import ModelConfig
from unmask.model.families import FAMILIES
from unmask.model.generate import generate
from unmask.recipe import Recipe, TaskRecipe
from unmask.tasks.generate import metrics
from unmask.tasks.generate.form import references
from unmask.tasks.generate.spec import SPEC
from unmask.tasks.spec import TaskSpec
from unmask.tasks.task import Answer, Outputs, Task, Update
from unmask.text.vocabulary import CJK

if TYPE_CHECKING:
    from unmask.model.model import Model

SHOWN = 20  # answers that a report shows
# Blanks that WordPiece puts between characters.
_APART = re.compile(f"(?<=[{CJK}，。；：！？、]) (?=[{CJK}，。；：！？、])")


class Generate(Task):
    SPEC = SPEC
    metric = "rougeL"
    decoder = False  # whether the model writes with one

    @classmethod
    def specify(cls, settings: TaskRecipe, learnt: Mapping[str, Any], config: ModelConfig | None) -> TaskSpec:
        how = {"max_new_tokens": settings.generate.longest, "num_beams": settings.generate.beams}
        return cls.SPEC.bind(asks="one text", generation=how, prefix=settings.generate.prefix)

    @classmethod
    def unfit(cls, config: ModelConfig) -> str:
        return "" if cls.has_head(FAMILIES[config.family]) else "it has no head that writes one token after the other"

    @classmethod
    def has_head(cls, family: Any) -> bool:
        return any({"lm", "mlm"} & set(held) for held in family.architectures.values())

    @classmethod
    def check(cls, recipe: Recipe, config: ModelConfig) -> None:
        super().check(recipe, config)
        longest, row = recipe.task.generate.longest, cls.study(recipe, config, [])["length"]
        most = row - 8  # a text of a few tokens has to fit in beside the answer
        if config.decoder_layers:
            most = longest if config.positions == "relative" else config.max_positions
        if longest > most:
            raise UserError(
                f"task.generate.longest {longest}: answers of so many tokens",
                valid=f"at most {most} with this model and this length",
                fix=f"--set task.generate.longest={most // 2}"
                + ("" if config.decoder_layers else ", or a greater --length"),
            )
        if recipe.task.freeze == "encoder" and not config.decoder_layers:
            raise UserError("task.freeze=encoder: this model writes with its encoder", fix="leave --freeze out")
        from unmask.model.weights import PATTERNS, read_settings

        settings = read_settings(resolve(recipe.start, PATTERNS)) if recipe.start else {}
        if "rtd" in FAMILIES[config.family].architectures.get((settings.get("architectures") or [""])[0], ()):
            what = f"{recipe.start} is a discriminator: it tells words apart, and has no head that writes any"
            raise UserError(what, fix=f"unmask finetune {quote(Path(recipe.start, 'generator'))}, where that is there")

    @classmethod
    def study(cls, recipe: Recipe, config: ModelConfig, records: Sequence[Record]) -> dict[str, Any]:
        language = metrics.language([str(r["target"]) for r in records[:1000]])
        return super().study(recipe, config, records) | {"language": language}

    def bind(self, config: ModelConfig) -> None:
        super().bind(config)
        self.decoder = config.decoder_layers > 0
        self.causal, self.most = config.causal, config.max_positions
        self.start = self.tokenizer.pad if config.start_id is None else config.start_id

    def changes(self, config: ModelConfig) -> dict[str, Any]:
        return {} if self.decoder or self.causal else {"predicts": "next"}

    @property
    def how(self) -> dict[str, Any]:
        """Settings of generation that are the task's own."""
        return {"max_new_tokens": self.settings.generate.longest, "num_beams": self.settings.generate.beams}

    def begin(self, model: Model) -> list[str]:
        """The folder's generation_config.json says what the task does, for all who read it."""
        from unmask.model.hf import default_generation

        kept = {k: v for k, v in model.generation.items() if k not in ("max_length", "max_new_tokens", "num_beams")}
        plain = default_generation(model.config)
        told = [f"{k} {v}" for k, v in kept.items() if k not in plain and not k.endswith(("_id", "_version"))]
        model.generation = (kept or plain) | self.how
        return [f"generation_config.json says more, which is kept: {', '.join(told)}"] if told else []

    # ------------------------------------------------------------------------------------------------ rows

    def prompt(self, record: Record) -> tuple[list[int], int]:
        """What is read, special tokens included, and how many tokens of the text had no room: an answer in the same row needs some."""
        t, ids = self.tokenizer, self.tokenizer.encode(self.settings.generate.prefix + record["text"])
        before, after = ([t.cls] if t.cls not in (None, t.sep) else [], [t.sep]) if self.causal else ([], [])
        special = len(before + after) or len(t.surround([])[0])
        room = self.windowing.length - special - (0 if self.decoder else self.settings.generate.longest)
        cut = len(ids) - room if self.windowing.check(record, [len(ids)], room) else 0
        return [*before, *ids[:room], *after] if self.causal else t.surround(ids[:room])[0], cut

    def wanted(self, text: str) -> list[int]:
        """The target's tokens, the end too: an encoder–decoder's as its tokenizer surrounds a text."""
        t, ids = self.tokenizer, self.tokenizer.encode(text)
        ids = t.surround(ids)[0] if self.decoder else ids
        return [*ids, *([] if self.decoder and ids[-1:] == [t.sep] else [t.sep])][: self.settings.generate.longest]

    def encode(self, record: Record, labelled: bool = True) -> list[Example]:
        prompt, cut = self.prompt(record)
        ids = np.array(prompt)
        if not labelled:
            return [Example(ids, texts=(record["text"],), about=cut)]
        target = np.array(self.wanted(record["target"]))
        tally, longest = self.windowing.tally, self.settings.generate.longest
        if cut and self.windowing.length < self.most:
            tally.note(f"--length {self.most} reads more of a long text, and takes longer")
        if target[-1] != self.tokenizer.sep:
            told = "--set task.generate.longest=… allows more"
            tally.others[f"targets have more than {longest} tokens and are learnt without their end; {told}"] += 1
        if self.decoder:
            labels = {"generate.outputs": np.arange(len(target)), "generate.targets": target}
            return [Example(ids, decoder=np.concatenate([[self.start], target[:-1]]), labels=labels)]
        labels = {"generate.positions": len(ids) - 1 + np.arange(len(target)), "generate.targets": target}
        return [Example(np.concatenate([ids, target[:-1]]), prefix=None if self.causal else len(ids), labels=labels)]

    # ----------------------------------------------------------------------------------------------- answers

    def shared(self, records: Sequence[Record]) -> bool:
        """What is drawn by chance is addressed by the record's number among all; there are no logits to hold."""
        return True

    def compute(self, model: Any, records: Sequence[Record], update: Update | None = None) -> Outputs:
        """The tokens written to each record."""
        rows = [self.encode(record, labelled=False)[0] for record in records]
        made = generate(model, [row.ids.tolist() for row in rows], update=update, **self.how)
        return Outputs([np.array(new, np.int64) for new in made], rows, np.arange(len(rows)))

    def write(self, new: Sequence[int]) -> str:
        """Tokens as text, without special tokens such as T5's <extra_id_0>: as transformers with `skip_special_tokens=True`."""
        t = self.tokenizer
        text = t.decode([i for i in new if i < t.size and not t.special[i]]).strip()
        return _APART.sub("", text) if t.kind == "wordpiece" else text

    def decode(self, outputs: Outputs) -> list[Answer]:
        """`ended`: by itself, not by its length. `cut`: tokens at the text's end that were not read."""
        return [
            {"output": self.write(new.tolist()), "ended": self.tokenizer.sep in new[-1:]}
            | ({"cut": row.about} if row.about else {})
            for new, row in zip(outputs.values, outputs.examples, strict=True)
        ]

    def score(self, answers: Sequence[Answer], records: Sequence[Record]) -> dict[str, float]:
        return metrics.scores(list(map(references, records)), [a["output"] for a in answers], self.learnt["language"])

    def details(self, answers: Sequence[Answer], records: Sequence[Record]) -> dict[str, Any]:
        rows = []
        for answer, r in zip(answers, records, strict=True):
            score = metrics.rouge(references(r), answer["output"], self.learnt["language"])["rougeL"]
            shown = {"at": r.get("at", ""), "text": r["text"][:500], "want": r["target"], "got": answer["output"]}
            rows.append(shown | {"score": round(score, 4)})
        rows.sort(key=lambda row: row["score"])
        return {"errors": rows[:SHOWN], "examples": rows[::-1][: SHOWN // 2]}
