"""Warnings that name a cause: what a person who has trained many of these would say while looking over your shoulder."""

from collections import deque
from typing import Any

WINDOW = 20  # steps whose mean loss is looked at


class Health:
    """Fed with the losses of a run; `check` gives each warning once.

    >>> h = Health(unigram=5.0, steps=100)
    >>> [w for step in range(60) for w in h.check(step, {"mlm": 5.1})][0][:44]
    'the MLM loss (5.10) is still at the unigram '
    """

    def __init__(self, unigram: float, steps: int):
        self.unigram, self.steps = unigram, steps
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
                "model knows how frequent each token is and nothing of context. Small post-norm BERTs stay there for "
                "thousands of steps; --preset modernbert-mini with train.optimizer=muon leaves it within a hundred. "
                "Otherwise: a longer budget, or another learning rate (--set train.lr=…)."
            )
        if mean > self.lowest + 1.0:
            found["divergence"] = (
                f"the loss is going up ({self.lowest:.2f} → {mean:.2f}): it diverges. Lower the learning rate "
                "(--set train.lr=… train.muon_lr=…) or lengthen the warm-up (--set train.warmup=0.1)."
            )
        fresh = [text for name, text in found.items() if name not in self.said]
        self.said |= set(found)
        return fresh


def text_warnings(meta: dict[str, Any]) -> list[str]:
    """What the store's own counts say against training on it."""
    out = []
    train = meta["train"]
    unknown = train["unk_tokens"] / max(1, train["tokens"])
    if unknown > 0.01:
        out.append(
            f"{unknown:.1%} of the tokens are [UNK]: the tokenizer does not know this text. "
            "Train one on it (leave out --tokenizer), or take --kind byte, which knows everything."
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
