"""Warnings during training that name a likely cause and a remedy."""

from collections import deque
from typing import Any

from unmask.model.config import ModelConfig
from unmask.recipe import TrainRecipe

WINDOW = 20  # steps over which the loss is averaged


class LossMonitor:
    """Watches the losses of a run; `check` returns each warning once.

    >>> monitor = LossMonitor(unigram_entropy=5.0, steps=100, advice="Train longer.")
    >>> [w for step in range(60) for w in monitor.check(step, {"mlm": 5.1})][0][:44]
    'the MLM loss (5.10) is still at the unigram '
    """

    def __init__(self, unigram_entropy: float, steps: int, advice: str):
        """`advice`: how this run can leave the plateau, from `plateau_advice`."""
        self.unigram_entropy, self.steps, self.advice = unigram_entropy, steps, advice
        self.recent: deque[float] = deque(maxlen=WINDOW)
        self.lowest = float("inf")
        self.reported: set[str] = set()

    def check(self, step: int, values: dict[str, float]) -> list[str]:
        loss = values.get("mlm", values.get("loss"))
        if loss is None:
            return []
        self.recent.append(loss)
        if len(self.recent) < (self.recent.maxlen or 1):
            return []
        mean = sum(self.recent) / len(self.recent)
        self.lowest = min(self.lowest, mean)
        entropy, warnings = self.unigram_entropy, {}
        if "mlm" in values and entropy and step >= self.steps // 2 and mean > 0.97 * entropy:
            warnings["plateau"] = (
                f"the MLM loss ({mean:.2f}) is still at the unigram entropy of the text ({entropy:.2f}): the model has "
                f"learned token frequencies, but does not use context yet. {self.advice}"
            )
        if mean > self.lowest + 1.0:
            warnings["divergence"] = (
                f"training is diverging (loss {self.lowest:.2f} → {mean:.2f}). Lower the learning rate "
                "(--set train.lr=… train.muon_lr=…) or lengthen the warm-up (--set train.warmup=0.1)."
            )
        new = [text for name, text in warnings.items() if name not in self.reported]
        self.reported |= set(warnings)
        return new


def plateau_advice(train: TrainRecipe, config: ModelConfig, is_new_model: bool) -> str:
    """Suggest settings for a run whose model has learned only token frequencies, except those it already uses."""
    faster = []
    if is_new_model and config.norm == "post" and config.encoder == "transformer":
        faster.append("--preset modernbert-mini (post-norm models such as BERT stay here for thousands of steps)")
    if train.optimizer != "muon":
        faster.append("--set train.optimizer=muon")
    if is_new_model and train.embedding_init != "corpus_statistics" and config.encoder == "transformer":
        faster.append("--set train.embedding_init=corpus_statistics")
    rates = "train.lr and train.muon_lr" if train.optimizer == "muon" else "train.lr"
    rest = f"train for more steps, add more text, or try half and twice the current learning rate ({rates})"
    return (
        f"To leave this plateau sooner, use {'; '.join(faster)}. Otherwise, {rest}."
        if faster
        else f"To leave it, {rest}."
    )


def corpus_warnings(meta: dict[str, Any]) -> list[str]:
    """Return warnings about a corpus from the counts in its store's meta.json."""
    warnings = []
    train = meta["train"]
    # Older stores with GPT-2 tokenizers counted the token that ends each document, which is also their [UNK].
    counts_document_ends = train["unk_tokens"] == train["documents"]
    unknown = 0.0 if counts_document_ends else train["unk_tokens"] / max(1, train["tokens"])
    if unknown > 0.01:
        warnings.append(
            f"{unknown:.1%} of the tokens are [UNK]: the tokenizer does not cover this text. "
            "Remove --tokenizer to train one on the text, or use --tokenizer-type byte, which covers every text."
        )
    dropped, documents = meta["duplicates"]["exact"], meta["duplicates"]["documents"]
    if dropped > 0.5 * documents:
        warnings.append(
            f"{dropped:,} of {documents:,} documents were exact duplicates and were dropped: the corpus is "
            "mostly one text repeated, so the model will learn little else. Check how it was collected."
        )
    near = meta["duplicates"].get("near", {})
    if near.get("share", 0) > 0.5:
        warnings.append(
            f"{near['share']:.0%} of the sampled documents are near duplicates of another: "
            "validation scores will be too optimistic."
        )
    return warnings
