"""A text → a new one: a summary, a reply, a completion. One loss for three ways of writing, by what the model is:

| model                        | row                                      | the loss reads                            |
|------------------------------|------------------------------------------|-------------------------------------------|
| encoder–decoder (T5, BART)   | prefix text </s>; decoder: start target  | target </s> at the decoder                |
| causal (GPT, GPT-2)          | prefix text <end> target <end>           | target <end>, each after what is before it |
| encoder with an MLM head     | [CLS] prefix text [SEP] target [SEP]     | the same; `Example.prefix` ends after the first [SEP] |

Vocabulary logits exist at the target's tokens alone. An answer is written as generation_config.json says, with `task.generate.max_new_tokens`
tokens at most and `task.generate.num_beams` beams. What is too long is cut at its end and counted (`long: refuse` refuses it): windows have no
meaning here. A target that is cut has no end token, so that nothing learns to stop there.

While training, answers are written to the first `seen` dev records only (`train.max_eval_examples` sets another number), at the end to all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unmask.batch import Example
from unmask.errors import UserError, quote
from unmask.hub import resolve
from unmask.labels.records import Record
from unmask.model.config import ModelConfig
from unmask.model.families import FAMILIES
from unmask.recipe import Recipe, TaskRecipe
from unmask.tasks.generate import metrics
from unmask.tasks.generate.form import references
from unmask.tasks.generate.spec import SPEC
from unmask.tasks.spec import TaskSpec
from unmask.tasks.task import DataSummary, FitContext, Outputs, Prediction, Task, resolve_max_length
from unmask.text.vocabulary import CJK

SHOWN = 20  # answers that a report shows
# Blanks that WordPiece puts between characters.
_APART = re.compile(f"(?<=[{CJK}，。；：！？、]) (?=[{CJK}，。；：！？、])")


class Generate(Task):
    SPEC = SPEC

    @classmethod
    def make_spec(cls, settings: TaskRecipe, task_state: Mapping[str, Any], config: ModelConfig | None) -> TaskSpec:
        how = {"max_new_tokens": settings.generate.max_new_tokens, "num_beams": settings.generate.num_beams}
        next_token = config is None or config.decoder_layers or config.causal
        changed = {} if next_token else {"logit_position": "next"}
        return cls.SPEC.bind(
            input_description="one text",
            generation=how,
            source_prefix=settings.generate.source_prefix,
            config_overrides=changed,
        )

    @classmethod
    def check(cls, recipe: Recipe, config: ModelConfig) -> None:
        super().check(recipe, config)
        longest, row = recipe.task.generate.max_new_tokens, resolve_max_length(recipe, config)
        most = row - 8  # a text of a few tokens has to fit in beside the answer
        if config.decoder_layers:
            most = longest if config.positions == "relative" else config.max_positions
        if longest > most:
            raise UserError(
                f"task.generate.max_new_tokens {longest}: answers of so many tokens",
                expected=f"at most {most} with this model and this length",
                hint=f"--set task.generate.max_new_tokens={most // 2}"
                + ("" if config.decoder_layers else ", or a greater --max-length"),
            )
        if recipe.task.freeze == "encoder" and not config.decoder_layers:
            raise UserError("task.freeze=encoder: this model writes with its encoder", hint="leave --freeze out")
        from unmask.model.weights import PATTERNS, read_settings

        settings = read_settings(resolve(recipe.init_from, PATTERNS)) if recipe.init_from else {}
        if "rtd" in FAMILIES[config.family].architectures.get((settings.get("architectures") or [""])[0], ()):
            what = f"{recipe.init_from} is a discriminator: it tells words apart, and has no head that writes any"
            raise UserError(
                what, hint=f"unmask finetune {quote(Path(recipe.init_from, 'generator'))}, where that is there"
            )

    @classmethod
    def fit_state(
        cls, context: FitContext, records: Sequence[Record], previous: Mapping[str, Any] | None = None
    ) -> DataSummary:
        summary = super().fit_state(context, records, previous)
        language = {} if previous else {"language": metrics.language([str(r["target"]) for r in records[:1000]])}
        return DataSummary(summary.task_state | language)

    @property
    def model_config(self) -> ModelConfig:
        assert self.config is not None, "what a row is depends on the model: `bind` comes first"
        return self.config

    @property
    def decoder(self) -> bool:
        """Whether the model writes with one."""
        return self.config is not None and self.config.decoder_layers > 0

    @property
    def causal(self) -> bool:
        return self.model_config.causal

    # ------------------------------------------------------------------------------------------------ rows

    def prompt(self, record: Record) -> tuple[list[int], int]:
        """What is read, special tokens included, and how many tokens of the text had no room: an answer in the same row needs some."""
        t, ids = self.tokenizer, self.tokenizer.encode(self.settings.generate.source_prefix + record["text"])
        before, after = ([t.cls] if t.cls not in (None, t.sep) else [], [t.sep]) if self.causal else ([], [])
        special = len(before + after) or len(t.build_inputs_with_special_tokens([])[0])
        room = self.windowing.length - special - (0 if self.decoder else self.settings.generate.max_new_tokens)
        cut = len(ids) - room if self.windowing.check_overflow(record, [len(ids)], room) else 0
        return [*before, *ids[:room], *after] if self.causal else t.build_inputs_with_special_tokens(ids[:room])[0], cut

    def target_ids(self, text: str) -> list[int]:
        """The target's tokens, the end too: an encoder–decoder's as its tokenizer surrounds a text."""
        t, ids = self.tokenizer, self.tokenizer.encode(text)
        ids = t.build_inputs_with_special_tokens(ids)[0] if self.decoder else ids
        return [*ids, *([] if self.decoder and ids[-1:] == [t.sep] else [t.sep])][
            : self.settings.generate.max_new_tokens
        ]

    def encode(self, record: Record, labelled: bool = True) -> list[Example]:
        prompt, cut = self.prompt(record)
        ids = np.array(prompt)
        if not labelled:
            return [Example(ids, texts=(record["text"],), metadata=cut)]
        target = np.array(self.target_ids(record["target"]))
        tally, longest = self.windowing.tally, self.settings.generate.max_new_tokens
        if cut and self.windowing.length < (most := self.model_config.max_positions):
            tally.note(f"--max-length {most} reads more of a long text, and takes longer")
        if target[-1] != self.tokenizer.sep:
            told = "--set task.generate.max_new_tokens=… allows more"
            tally.other_counts[f"targets have more than {longest} tokens and are learnt without their end; {told}"] += 1
        if self.decoder:
            labels = {"generate.decoder_positions": np.arange(len(target)), "generate.targets": target}
            start = self.model_config.start_id
            first = [self.tokenizer.pad if start is None else start]
            return [Example(ids, decoder_input_ids=np.concatenate([first, target[:-1]]), labels=labels)]
        labels = {"generate.positions": len(ids) - 1 + np.arange(len(target)), "generate.targets": target}
        return [
            Example(np.concatenate([ids, target[:-1]]), prefix_length=None if self.causal else len(ids), labels=labels)
        ]

    # ----------------------------------------------------------------------------------------------- answers

    def write(self, new: Sequence[int]) -> str:
        """Tokens as text, without special tokens such as T5's <extra_id_0>: as transformers with `skip_special_tokens=True`."""
        t = self.tokenizer
        text = t.decode([i for i in new if i < t.size and not t.special[i]]).strip()
        return _APART.sub("", text) if t.type == "wordpiece" else text

    def decode(self, outputs: Outputs) -> list[Prediction]:
        """`num_truncated_tokens`: at the end of the text, which were not read."""
        return [
            {"output": self.write(new.tolist()), "finish_reason": "eos" if self.tokenizer.sep in new[-1:] else "length"}
            | ({"num_truncated_tokens": row.metadata} if row.metadata else {})
            for new, row in zip(outputs.values, outputs.examples, strict=True)
        ]

    def score(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        return metrics.scores(
            list(map(references, records)), [a["output"] for a in predictions], self.task_state["language"]
        )

    def details(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, Any]:
        rows = []
        for prediction, r in zip(predictions, records, strict=True):
            score = metrics.rouge(references(r), prediction["output"], self.task_state["language"])["rougeL"]
            shown = {
                "location": r.get("location", ""),
                "text": r["text"][:500],
                "expected": r["target"],
                "predicted": prediction["output"],
            }
            rows.append(shown | {"score": round(score, 4)})
        rows.sort(key=lambda row: row["score"])
        return {"errors": rows[:SHOWN], "examples": rows[::-1][: SHOWN // 2]}
