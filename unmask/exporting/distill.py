"""Train a static model (inference/static_engine.py) to give the outputs of a fine-tuned model for the same texts.

The vectors start as those of model2vec: the fine-tuned model reads every token of the vocabulary alone, and PCA reduces its output.
Vectors, linear layer and bigrams are then trained on the outputs of the model by Adam: cross-entropy with its probabilities, or
squared error for numbers. Training stops when the loss on the held-out texts no longer falls, and the best weights are kept.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from unmask.batch import Example
from unmask.inference.static_engine import StaticWeights, bigram_rows
from unmask.inference.torch_engine import TorchEngine
from unmask.seeds import generator
from unmask.tasks.terms import TERMS
from unmask.text.tokenizer import Tokenizer

DIM = 128
BUCKETS = 2**18  # rows of the table of bigrams
MAX_BIGRAM_VALUES = 2**22  # 16 MB: a task with many outputs gets fewer rows
LR, BIGRAM_LR = 0.01, 0.03  # a row of a bigram is updated less often
BATCH_SIZE, MIN_STEPS_PER_EVAL = 64, 100  # evaluate after every epoch; with few texts, after several
MAX_EVALS, PATIENCE = 30, 3
TOKENS_AT_A_TIME = 4096  # tokens of the vocabulary whose hidden states are in memory
Texts = Sequence[tuple[np.ndarray, np.ndarray]]  # the tokens of each text; of a pair, those of both
Update = Callable[[float, float, str], None]


@dataclass(frozen=True)
class Targets:
    """Texts, and the outputs of the model for them, (N, outputs)."""

    texts: Texts
    logits: np.ndarray


class Student(nn.Module):
    """The static model in torch. It computes what StaticEngine computes in numpy."""

    def __init__(self, vectors: np.ndarray, outputs: int, pairs: bool, prior_tokens: float = 1.0):
        super().__init__()
        self.prior_tokens = prior_tokens
        self.mean, self.sd = 0.0, 1.0  # of the targets: numbers are standardized
        self.tokens = nn.EmbeddingBag.from_pretrained(torch.from_numpy(vectors), freeze=False, mode="sum")
        self.linear = nn.Linear(vectors.shape[1] * (4 if pairs else 1), outputs)
        self.bigrams: nn.EmbeddingBag | None = None
        if not pairs:
            self.bigrams = nn.EmbeddingBag(num_buckets(outputs), outputs, mode="sum")
            nn.init.zeros_(self.bigrams.weight)
        with torch.no_grad():  # derived from a key, like all random numbers
            values = generator(0, "static", "linear").normal(0, 0.1, self.linear.weight.shape)
            self.linear.weight.copy_(torch.from_numpy(values))
            self.linear.bias.zero_()

    def forward(self, texts: Texts) -> Tensor:
        """Return the outputs (N, outputs)."""
        return self.standardized(texts) * self.sd + self.mean

    def standardized(self, texts: Texts) -> Tensor:
        a = self._mean(self.tokens, [ids for ids, _ in texts])
        if self.bigrams is None:
            b = self._mean(self.tokens, [ids for _, ids in texts])
            return self.linear(torch.cat([a, b, (a - b).abs(), a * b], -1))
        rows = [bigram_rows(ids, self.bigrams.num_embeddings) for ids, _ in texts]
        return self.linear(a) + self._mean(self.bigrams, rows)

    def _mean(self, table: nn.EmbeddingBag, rows: Sequence[np.ndarray]) -> Tensor:
        lengths = torch.tensor([len(row) for row in rows])
        sums = table(torch.from_numpy(np.concatenate(rows)), lengths.cumsum(0) - lengths)
        return sums / (lengths[:, None] + self.prior_tokens)

    def weights(self, special: np.ndarray) -> StaticWeights:
        """Return the tensors of the model. `special`: (V,) True for tokens that do not count."""
        bigrams = torch.zeros(0, self.linear.out_features) if self.bigrams is None else self.bigrams.weight
        linear = [self.sd * self.linear.weight.T, self.sd * self.linear.bias + self.mean]
        embeddings, weight, bias, table = (
            np.ascontiguousarray(x.detach().numpy(), np.float32)
            for x in (self.tokens.weight, *linear, self.sd * bigrams)
        )
        return StaticWeights(embeddings, weight, bias, table, special)


def choose_prior(texts: Texts) -> float:
    """Return the number of zero vectors in a mean: a tenth of the median length, and at least 1.

    >>> choose_prior([(np.zeros(50), np.zeros(0)), (np.zeros(30), np.zeros(0))])
    4.0
    """
    lengths = [len(ids) for pair in texts for ids in pair if len(ids)]
    return max(1.0, float(np.median(lengths or [0])) / 10)


def num_buckets(outputs: int) -> int:
    """Return the number of rows of the table of bigrams."""
    return min(BUCKETS, max(1, MAX_BIGRAM_VALUES // outputs))


def num_parameters(vocab_size: int, dim: int, outputs: int, pairs: bool) -> int:
    """Return the number of parameters of a student.

    >>> num_parameters(50, 8, 2, True) == sum(p.numel() for p in Student(np.zeros((50, 8), np.float32), 2, True).parameters())
    True
    """
    return vocab_size * dim + (dim * (4 if pairs else 1) + 1 + (0 if pairs else num_buckets(outputs))) * outputs


def distill(student: Student, output: str, train: Targets, held_out: Targets, update: Update) -> None:
    """Train the student in place. `output`: that of the task's spec."""
    if output == "number":
        student.mean, student.sd = float(train.logits.mean()), float(train.logits.std()) or 1.0
    targets = [torch.from_numpy((part.logits - student.mean) / student.sd).float() for part in (train, held_out)]
    groups = [{"params": [student.tokens.weight, *student.linear.parameters()], "lr": LR}]
    if student.bigrams is not None:
        groups.append({"params": [student.bigrams.weight], "lr": BIGRAM_LR})
    optimizer = torch.optim.Adam(groups)

    def loss(texts: Texts, logits: Tensor) -> Tensor:
        return TERMS[output](logits=student.standardized(texts), targets=logits).distillation_loss(logits, 1.0) / len(
            texts
        )

    steps_per_epoch = -(-len(train.texts) // BATCH_SIZE)
    epochs_per_eval = -(-MIN_STEPS_PER_EVAL // steps_per_epoch)
    best, best_loss, evals_since_best = copy.deepcopy(student.state_dict()), np.inf, 0
    for epoch in range(MAX_EVALS * epochs_per_eval):
        order = generator(0, "static", epoch).permutation(len(train.texts))
        for start in range(0, len(order), BATCH_SIZE):
            rows = order[start : start + BATCH_SIZE]
            optimizer.zero_grad()
            loss([train.texts[n] for n in rows], targets[0][rows]).backward()
            optimizer.step()
        update(epoch + 1, MAX_EVALS * epochs_per_eval, "training the copy")
        if (epoch + 1) % epochs_per_eval:
            continue
        with torch.inference_mode():
            current = float(loss(held_out.texts, targets[1]))
        evals_since_best += 1
        if current < best_loss:
            best, best_loss, evals_since_best = copy.deepcopy(student.state_dict()), current, 0
        if evals_since_best >= PATIENCE:
            break
    student.load_state_dict(best)


def initial_vectors(engine: TorchEngine, tokenizer: Tokenizer) -> np.ndarray:
    """Return (V, DIM) float32: the output of the encoder for every token alone, reduced by PCA and scaled to a variance of 1."""
    before = len(tokenizer.special_token_layout[0][0])
    states = []
    for start in range(0, tokenizer.size, TOKENS_AT_A_TIME):
        ids = range(start, min(tokenizer.size, start + TOKENS_AT_A_TIME))
        rows = [Example(np.array(tokenizer.build_inputs_with_special_tokens([id])[0])) for id in ids]
        states.append(np.stack([hidden[before] for hidden in engine.hidden(rows)]))
    vectors = reduce_dimensions(np.concatenate(states), DIM)
    vectors[tokenizer.special] = 0.0  # they do not count
    return vectors


def reduce_dimensions(vectors: np.ndarray, dim: int) -> np.ndarray:
    """Return (V, at most dim) float32: the principal components, scaled together to a variance of 1.

    >>> reduce_dimensions(np.array([[3.0, 0.0], [-3.0, 0.1]]), 1).round(1).tolist() in ([[1.0], [-1.0]], [[-1.0], [1.0]])
    True
    """
    centered = vectors.astype(np.float64) - vectors.mean(0)
    _, directions = np.linalg.eigh(centered.T @ centered)  # ascending
    components = centered @ directions[:, ::-1][:, :dim]
    return (components / (components.std() or 1.0)).astype(np.float32)
