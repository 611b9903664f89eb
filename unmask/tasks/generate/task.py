"""Text generation from a text: summaries, replies, completions. The loss is the same for three kinds of models:

| model                        | row                                      | the loss reads                            |
|------------------------------|------------------------------------------|-------------------------------------------|
| encoder–decoder (T5, BART)   | prefix text </s>; decoder: start target  | target </s> at the decoder                |
| causal (GPT, GPT-2)          | prefix text <end> target <end>           | target <end>, each from the tokens before it |
| encoder with an MLM head     | [CLS] prefix text [SEP] target [SEP]     | the same; `Example.prefix_length` includes the first [SEP] |

Vocabulary logits are computed at the target's tokens only. Generation follows generation_config.json, with at most
`task.generate.max_new_tokens` tokens and `task.generate.num_beams` beams. Texts and targets that are too long are truncated at their end and
counted (`task.overflow: error` rejects long texts), because windows cannot be combined here. A truncated target has no end token, so that
the model does not learn to stop there.

During training, only the first `max_dev_records` dev records are predicted (`train.max_eval_examples` overrides this); at the end, all are.
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

MAX_SHOWN = 20  # predictions in a report
# Spaces that WordPiece decoding puts between Chinese characters.
_CJK_SPACES = re.compile(f"(?<=[{CJK}，。；：！？、]) (?=[{CJK}，。；：！？、])")


class Generate(Task):
    SPEC = SPEC

    @classmethod
    def make_spec(cls, settings: TaskRecipe, task_state: Mapping[str, Any], config: ModelConfig | None) -> TaskSpec:
        options = settings.generate
        predicts_next = config is None or config.decoder_layers or config.causal
        return cls.SPEC.bind(
            input_description="one text",
            generation={"max_new_tokens": options.max_new_tokens, "num_beams": options.num_beams},
            source_prefix=options.source_prefix,
            config_overrides={} if predicts_next else {"logit_position": "next"},
        )

    @classmethod
    def check(cls, recipe: Recipe, config: ModelConfig) -> None:
        super().check(recipe, config)
        max_new_tokens = recipe.task.generate.max_new_tokens
        limit = resolve_max_length(recipe, config) - 8  # leaves room for a short text in the same row
        if config.decoder_layers:
            limit = max_new_tokens if config.positions == "relative" else config.max_positions
        if max_new_tokens > limit:
            raise UserError(
                f"task.generate.max_new_tokens={max_new_tokens} is too large",
                expected=f"at most {limit} with this model and this --max-length",
                hint=f"--set task.generate.max_new_tokens={limit // 2}"
                + ("" if config.decoder_layers else ", or a larger --max-length"),
            )
        if recipe.task.freeze == "encoder" and not config.decoder_layers:
            raise UserError(
                "--freeze encoder leaves nothing to train: this model generates with its encoder",
                hint="remove --freeze",
            )
        from unmask.model.weights import PATTERNS, read_settings

        settings = read_settings(resolve(recipe.init_from, PATTERNS)) if recipe.init_from else {}
        if "rtd" in FAMILIES[config.family].architectures.get((settings.get("architectures") or [""])[0], ()):
            raise UserError(
                f"{recipe.init_from} is a discriminator, which has no head that generates text",
                hint=f"unmask finetune {quote(Path(recipe.init_from, 'generator'))}, if this folder exists",
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
        assert self.config is not None, "rows depend on the model: call `bind` first"
        return self.config

    @property
    def decoder(self) -> bool:
        """Return whether the model has a decoder."""
        return self.config is not None and self.config.decoder_layers > 0

    @property
    def causal(self) -> bool:
        return self.model_config.causal

    # ------------------------------------------------------------------------------------------------ rows

    def prompt(self, record: Record) -> tuple[list[int], int]:
        """Return the input ids with special tokens, and the number of truncated tokens. Without a decoder, leave room for the output."""
        t, ids = self.tokenizer, self.tokenizer.encode(self.settings.generate.source_prefix + record["text"])
        before, after = ([t.cls] if t.cls not in (None, t.sep) else [], [t.sep]) if self.causal else ([], [])
        num_special = len(before + after) or len(t.build_inputs_with_special_tokens([])[0])
        reserved = 0 if self.decoder else self.settings.generate.max_new_tokens
        max_tokens = self.windowing.length - num_special - reserved
        too_long = self.windowing.check_overflow(record, [len(ids)], max_tokens)
        num_truncated = len(ids) - max_tokens if too_long else 0
        ids = ids[:max_tokens]
        if self.causal:
            return [*before, *ids, *after], num_truncated
        return t.build_inputs_with_special_tokens(ids)[0], num_truncated

    def target_ids(self, text: str) -> list[int]:
        """Return the ids of the target with its end token; for an encoder–decoder, with the tokenizer's special tokens."""
        t, ids = self.tokenizer, self.tokenizer.encode(text)
        if self.decoder:
            ids = t.build_inputs_with_special_tokens(ids)[0]
        if not (self.decoder and ids[-1:] == [t.sep]):
            ids = [*ids, t.sep]
        return ids[: self.settings.generate.max_new_tokens]

    def encode(self, record: Record, labeled: bool = True) -> list[Example]:
        prompt, num_truncated = self.prompt(record)
        ids = np.array(prompt)
        if not labeled:
            return [Example(ids, texts=(record["text"],), metadata=num_truncated)]
        target = np.array(self.target_ids(record["target"]))
        tally, max_new_tokens = self.windowing.tally, self.settings.generate.max_new_tokens
        if num_truncated and self.windowing.length < (limit := self.model_config.max_positions):
            tally.note(f"--max-length {limit} reads more of a long text, but is slower")
        if target[-1] != self.tokenizer.sep:
            note = f"targets have more than {max_new_tokens} tokens and are truncated"
            tally.other_counts[f"{note}; --set task.generate.max_new_tokens=… allows more"] += 1
        if self.decoder:
            labels = {"generate.decoder_positions": np.arange(len(target)), "generate.targets": target}
            start = self.model_config.start_id
            first = [self.tokenizer.pad if start is None else start]
            return [Example(ids, decoder_input_ids=np.concatenate([first, target[:-1]]), labels=labels)]
        labels = {"generate.positions": len(ids) - 1 + np.arange(len(target)), "generate.targets": target}
        return [
            Example(np.concatenate([ids, target[:-1]]), prefix_length=None if self.causal else len(ids), labels=labels)
        ]

    # ------------------------------------------------------------------------------------------- predictions

    def decode_text(self, ids: Sequence[int]) -> str:
        """Decode ids without special tokens such as T5's <extra_id_0>, like transformers with `skip_special_tokens=True`."""
        t = self.tokenizer
        text = t.decode([i for i in ids if i < t.size and not t.special[i]]).strip()
        return _CJK_SPACES.sub("", text) if t.type == "wordpiece" else text

    def decode(self, outputs: Outputs) -> list[Prediction]:
        """Return the generated texts. `num_truncated_tokens` counts the tokens at the end of the input that were not read."""
        predictions: list[Prediction] = []
        for ids, row in zip(outputs.values, outputs.examples, strict=True):
            finish_reason = "eos" if self.tokenizer.sep in ids[-1:] else "length"
            prediction = {"output": self.decode_text(ids.tolist()), "finish_reason": finish_reason}
            predictions.append(prediction | ({"num_truncated_tokens": row.metadata} if row.metadata else {}))
        return predictions

    def score(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        return metrics.scores(
            list(map(references, records)), [p["output"] for p in predictions], self.task_state["language"]
        )

    def details(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, Any]:
        rows = []
        for prediction, r in zip(predictions, records, strict=True):
            score = metrics.rouge(references(r), prediction["output"], self.task_state["language"])["rougeL"]
            rows.append(
                {
                    "location": r.get("location", ""),
                    "text": r["text"][:500],
                    "expected": r["target"],
                    "predicted": prediction["output"],
                    "score": round(score, 4),
                }
            )
        rows.sort(key=lambda row: row["score"])
        return {"errors": rows[:MAX_SHOWN], "examples": rows[::-1][: MAX_SHOWN // 2]}
