"""Warnings that name a cause: what a person who has trained many of these would say while looking over your shoulder."""

from collections import deque
from typing import Any

from unmask.model.config import ModelConfig
from unmask.recipe import TrainRecipe

WINDOW = 20  # steps whose mean loss is looked at


class LossMonitor:
    """Fed with the losses of a run; `check` gives each warning once.

    >>> h = LossMonitor(unigram=5.0, steps=100, advice="a longer budget")
    >>> [w for step in range(60) for w in h.check(step, {"mlm": 5.1})][0][:44]
    'the MLM loss (5.10) is still at the unigram '
    """

    def __init__(self, unigram: float, steps: int, advice: str):
        """`advice`: what helps this run off the plateau, from `off_the_plateau`."""
        self.unigram, self.steps, self.advice = unigram, steps, advice
        self.recent: deque[float] = deque(maxlen=WINDOW)
        self.lowest = float("inf")
        self.said: set[str] = set()

    def check(self, step: int, values: dict[str, float]) -> list[str]:
        loss = values.get("mlm", values.get("loss"))
        if loss is None:
            return []
        self.recent.append(loss)
        if len(self.recent) < (self.recent.maxlen or 1):
            return []
        mean = sum(self.recent) / len(self.recent)
        self.lowest = min(self.lowest, mean)
        found = {}
        if "mlm" in values and self.unigram and step >= self.steps // 2 and mean > 0.97 * self.unigram:
            found["plateau"] = (
                f"the MLM loss ({mean:.2f}) is still at the unigram entropy of the text ({self.unigram:.2f}): so far the "
                f"model knows how frequent each token is and nothing of context. {self.advice}"
            )
        if mean > self.lowest + 1.0:
            found["divergence"] = (
                f"the loss is going up ({self.lowest:.2f} → {mean:.2f}): it diverges. Lower the learning rate "
                "(--set train.lr=… train.muon_lr=…) or lengthen the warm-up (--set train.warmup=0.1)."
            )
        fresh = [text for name, text in found.items() if name not in self.said]
        self.said |= set(found)
        return fresh


def plateau_advice(train: TrainRecipe, config: ModelConfig, new: bool) -> str:
    """What a run that only knows token frequencies can change: settings that it does not have yet, then budget and rate.

    `new`: the model was drawn, not loaded.
    """
    faster = []
    if new and config.norm == "post" and config.encoder == "transformer":
        faster.append("--preset modernbert-mini (post-norm models such as BERT stay here for thousands of steps)")
    if train.optimizer != "muon":
        faster.append("--set train.optimizer=muon")
    if new and train.embedding_init != "corpus_statistics" and config.encoder == "transformer":
        faster.append("--set train.embedding_init=corpus_statistics")
    rates = "train.lr, train.muon_lr" if train.optimizer == "muon" else "train.lr"
    rest = f"more steps or more text, or another learning rate ({rates}; half and twice the current one)"
    return f"What leaves it sooner: {'; '.join(faster)}. Otherwise: {rest}." if faster else f"What can help: {rest}."


def corpus_warnings(meta: dict[str, Any]) -> list[str]:
    """What the store's own counts say against training on it."""
    out = []
    train = meta["train"]
    # Older stores of GPT-2's tokenizers counted the token that ends each document, which is their [UNK] too.
    ends = train["unk_tokens"] == train["documents"]
    unknown = 0.0 if ends else train["unk_tokens"] / max(1, train["tokens"])
    if unknown > 0.01:
        out.append(
            f"{unknown:.1%} of the tokens are [UNK]: the tokenizer does not know this text. "
            "Train one on it (leave out --tokenizer), or take --tokenizer-type byte, which knows everything."
        )
    dropped, documents = meta["duplicates"]["exact"], meta["duplicates"]["documents"]
    if dropped > 0.5 * documents:
        out.append(
            f"{dropped:,} of {documents:,} documents were exact duplicates of others and were dropped: the corpus is "
            "mostly one text repeated, and the model will know little else. Check how it was collected."
        )
    near = meta["duplicates"].get("near", {})
    if near.get("share", 0) > 0.5:
        out.append(
            f"{near['share']:.0%} of the documents looked at are near duplicates of another: "
            "held-out figures will look better than they are."
        )
    return out
