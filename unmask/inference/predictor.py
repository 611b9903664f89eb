"""Predictor: inference with a trained model. It has the methods that the model's heads support.

| method | head | result |
|---|---|---|
| fill | mlm | candidates for each [MASK], and the filled text |
| score | mlm | pseudo-log-likelihood of each token (Salazar et al. 1910.14659) |
| score | lm, causal; mlm that predicts the next token | log-likelihood of each token given those before it |
| generate | lm, mlm | a continuation, or the output of an encoder–decoder |
| next_sentence | nsp | probability that B follows A (BERT 1810.04805 §3.1) |
| classify, tag, answer, choose, rank | the task's | predictions of a fine-tuned model (task_methods.py) |
| embed, similarity, word_vectors | none | vectors of texts, tokens and words |
| attention, explain | none | attention weights and token attributions (introspection.py) |

A text returns one result, and a list returns a list in the same order. An Engine (engine.py) runs the network. The methods are
implemented in filling.py, scoring.py, vectors.py and causal.py. Texts are batched by length. Nothing is truncated silently: a text
that is longer than the model's positions raises an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import numpy as np

from unmask.console import Console
from unmask.errors import UserError
from unmask.inference import causal, pairs, scoring, vectors
from unmask.inference.answers import Continuation, FillMaskResult, MinimalPairs, Score, WordVectors
from unmask.inference.engine import Engine
from unmask.inference.exported import FORMATS, export_format
from unmask.inference.filling import Filler, FillSettings
from unmask.inference.folders import model_folder
from unmask.inference.inputs import as_texts, texts_in
from unmask.inference.introspection import IntrospectionMixin
from unmask.inference.methods import available_methods
from unmask.inference.progress import Update
from unmask.inference.reader import Overflow, Reader
from unmask.inference.scoring import Method
from unmask.inference.task_methods import TaskMethods
from unmask.inference.unknown import warn_unknown
from unmask.inference.vectors import Pooling
from unmask.model.config import ModelConfig
from unmask.numeric import l2_normalize
from unmask.stopping import activity
from unmask.tasks import folder as task_folder
from unmask.tasks.task import Task
from unmask.text.store import TokenStore
from unmask.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from unmask.model.model import Model

TRAIN_COMMANDS = {  # head → command that trains a model with it
    "mlm": "unmask pretrain CORPUS --preset bert-mini --objective mlm",
    "nsp": "unmask pretrain CORPUS --preset bert-mini --objective mlm+nsp",
    "lm": "unmask pretrain CORPUS --preset gpt2-mini",
}
BACKENDS = ("auto", "torch", *FORMATS)


@activity("loading the model")
def load(
    path: str | PathLike[str],
    device: str = "auto",
    say: Callable[[str], None] | None = None,
    backend: str = "auto",
    batch_size: int | None = None,
) -> Predictor:
    """Load a model folder, a run folder, a checkpoint or a hub name.

    An unfinished run loads its last checkpoint, with a message to `say` (default: stderr). `backend`: "onnx" runs an exported graph
    and "static" a static copy, without torch; "auto" chooses the one that fits the folder. `batch_size`: rows per forward pass; None: about 2,000 tokens.
    """
    if batch_size is not None and batch_size < 1:
        raise UserError(f"invalid batch_size {batch_size}", expected="1 or more")
    if backend not in BACKENDS:
        raise UserError(f"invalid backend {backend!r}", expected=", ".join(BACKENDS))
    log = say or Console().say
    source = model_folder(path, log)
    if backend == "auto":
        backend = export_format(source) or "torch"
    engine: Engine
    engine, folder = import_module(f"unmask.inference.{backend}_engine").open_engine(source, device)
    engine.batch_size = batch_size
    try:
        tokenizer = Tokenizer.load(source, engine.config.vocab_size)
    except UserError as error:
        hint = error.hint or f"copy the tokenizer.json of the model into {source}"
        raise UserError(error.message, expected=error.expected, hint=hint) from None
    for note in tokenizer.notes:
        log(note)
    return Predictor(engine, tokenizer, task=task_folder.load_task(folder, engine.config, engine.heads, tokenizer))


class Predictor(TaskMethods, IntrospectionMixin):
    """
    >>> from unmask.model.config import preset
    >>> from unmask.model.model import Model
    >>> from unmask.recipe import TokenizerRecipe
    >>> tokenizer = Tokenizer.train(["a cab, a cab"], TokenizerRecipe(type="char"))
    >>> model = Model(preset("bert-tiny", vocab_size=tokenizer.size), heads=["mlm", "nsp"]).init(0)
    >>> p = Predictor(model, tokenizer)
    >>> filling = p.fill("a c[MASK]b", top_k=2)
    >>> len(filling.masks), len(filling.masks[0].candidates), len(filling.best)
    (1, 2, 5)
    >>> len(p.score("cab").per_token), sorted(p.next_sentence("a", "cab")), p.embed(["a", "cab"]).shape
    (3, ['next', 'other'], (2, 128))
    """

    def __init__(self, model: Engine | Model, tokenizer: Tokenizer, device: str = "auto", task: Task | None = None):
        if isinstance(model, Engine):
            self.engine: Engine = model
        else:
            from unmask.inference.torch_engine import TorchEngine

            self.engine = TorchEngine(model, device)
        tokenizer.check_vocab_size(self.engine.config.vocab_size)
        tokenizer.check_segments(self.engine.config.segments)
        self.tokenizer, self.task = tokenizer, task
        self.warns = True  # about texts that the tokenizer does not know (unknown.py)
        self.reader = Reader(tokenizer, self.engine.config)
        self._filler = Filler(self.engine, self.reader)

    @property
    def config(self) -> ModelConfig:
        return self.engine.config

    @property
    def heads(self) -> list[str]:
        return list(self.engine.heads)

    def __repr__(self) -> str:
        c, heads = self.engine.config, ", ".join(self.heads) or "none"
        if self.engine.kind == "static":
            return f"Predictor(static × {c.hidden}, {c.vocab_size:,} tokens, heads: {heads})"
        return f"Predictor({c.family} {c.layers} × {c.hidden}, {c.vocab_size:,} tokens, heads: {heads})"

    @overload
    def fill(self, text: str, top_k: int = 5, **settings: Unpack[FillSettings]) -> FillMaskResult: ...  # type: ignore[overload-overlap]
    @overload
    def fill(self, text: Iterable[str], top_k: int = 5, **settings: Unpack[FillSettings]) -> list[FillMaskResult]: ...
    def fill(
        self,
        text: str | Iterable[str],
        top_k: int = 5,
        *,
        num_beams: int = 0,
        max_subwords: int = 1,
        candidates: Sequence[str] | None = None,
        overflow: Overflow = "error",
        update: Update | None = None,
    ) -> FillMaskResult | list[FillMaskResult]:
        """Return the `top_k` candidates for every mask, and the best filled text. A mask is [MASK] or <mask>.

        `num_beams`: fill all masks jointly with a beam search of this width (0: each mask independently). `max_subwords`: maximum
        number of subwords of a word. `candidates`: the only words allowed (mask_fillers.py describes their scores). `overflow`:
        "error", or "window" to read the part of a long text around its masks. `update`: progress callback (done, total, "").
        """
        self._require_head("mlm", "fill a mask")
        texts = as_texts(text)
        self.warn_if_unknown(texts)
        out = self._filler.fill(texts, top_k, num_beams, max_subwords, candidates, overflow, update)
        return out[0] if isinstance(text, str) else out

    @overload
    def next_sentence(self, a: str, b: str) -> dict[str, float]: ...  # type: ignore[overload-overlap]
    @overload
    def next_sentence(self, a: Iterable[str], b: Iterable[str]) -> list[dict[str, float]]: ...
    def next_sentence(
        self, a: str | Iterable[str], b: str | Iterable[str]
    ) -> dict[str, float] | list[dict[str, float]]:
        """Return the probability that `b` follows `a`: {"next": p, "other": 1 − p}."""
        self._require_head("nsp", "predict whether a text follows another")
        firsts, seconds = as_texts(a), as_texts(b)
        self.warn_if_unknown([*firsts, *seconds])
        if len(firsts) != len(seconds):
            raise UserError(f"{len(firsts)} first and {len(seconds)} second texts", expected="the same number of each")
        out = []
        for logits in self.engine.logits("nsp", self.reader.pairs(firsts, seconds)):  # (2,): 0 = B follows A
            is_next, other = np.exp(logits - np.logaddexp(*logits)).tolist()
            out.append({"next": is_next, "other": other})
        return out[0] if isinstance(a, str) else out

    @overload
    def score(  # type: ignore[overload-overlap]
        self, text: str, method: Method = ..., overflow: Overflow = ..., update: Update | None = ...
    ) -> Score: ...
    @overload
    def score(
        self, text: Iterable[str], method: Method = ..., overflow: Overflow = ..., update: Update | None = ...
    ) -> list[Score]: ...
    def score(
        self,
        text: str | Iterable[str],
        method: Method = "pll",
        overflow: Overflow = "error",
        update: Update | None = None,
    ) -> Score | list[Score]:
        """Return the log-probability of each token given the others, or given the tokens before it for a model that predicts the
        next token (GPT; an encoder trained with clm, prefix or hybrid). `method`: see scoring.py.

        [UNK] is scored like any token. Other special tokens in the text are context only.
        """
        if not (self.config.causal and scoring.is_left_to_right(self.engine)):
            self._require_head("mlm", "score a text")
        texts = as_texts(text)
        self.warn_if_unknown(texts)
        out = scoring.score(self.engine, self.reader, texts, method, overflow, update)
        return out[0] if isinstance(text, str) else out

    def minimal_pairs(
        self,
        source: str | PathLike[str] | Iterable[Mapping[str, Any]],
        method: Method = "pll",
        update: Update | None = None,
    ) -> MinimalPairs:
        """Return how often the good sentence of a pair has the higher likelihood. `source`: a file, a folder or rows (pairs.py)."""
        return pairs.evaluate_pairs(pairs.read_pairs(source), lambda texts: self.score(texts, method, update=update))

    @overload
    def generate(self, text: str, **settings: Any) -> Continuation: ...  # type: ignore[overload-overlap]
    @overload
    def generate(self, text: Iterable[str], **settings: Any) -> list[Continuation]: ...
    def generate(self, text: str | Iterable[str], **settings: Any) -> Continuation | list[Continuation]:
        """Continue a text, or return the output of an encoder–decoder. `settings`: see `model/generation.py`.

        A model fine-tuned for generation uses the prefix and the settings of its task.
        """
        if not {"lm", "mlm"} & set(self.heads):
            self._require_head("lm", "continue a text")
        texts = as_texts(text)
        self.warn_if_unknown(texts)
        if self.task is not None and self.task.spec.output == "text":
            out = causal.generate_task_outputs(self.engine, self.task, texts, **settings)
        else:
            out = causal.generate_continuations(self.engine, self.reader, texts, **settings)
        return out[0] if isinstance(text, str) else out

    @overload
    def embed(  # type: ignore[overload-overlap]
        self, text: str, pooling: Pooling = ..., layer: int = ..., overflow: Overflow | None = ...
    ) -> np.ndarray: ...
    @overload
    def embed(
        self,
        text: Iterable[str],
        pooling: Literal["auto", "mean", "cls"] = ...,
        layer: int = ...,
        overflow: Overflow | None = ...,
        update: Update | None = ...,
    ) -> np.ndarray: ...
    @overload
    def embed(
        self,
        text: Iterable[str],
        pooling: Literal["token"],
        layer: int = ...,
        overflow: Overflow | None = ...,
        update: Update | None = ...,
    ) -> list[np.ndarray]: ...
    def embed(
        self,
        text: str | Iterable[str],
        pooling: Pooling = "auto",
        layer: int = -1,
        overflow: Overflow | None = None,
        update: Update | None = None,
    ) -> np.ndarray | list[np.ndarray]:
        """Return float32 vectors of the encoder's output (layer -1), of the embeddings (0), or of a layer.

        `auto`: the pooling and normalization of a sentence-transformers folder, else `mean`.
        `mean` (over all tokens, including [CLS] and [SEP]) and `cls`: (D,) for a text, (N, D) for a list.
        `token`: (T, D) for each text, including [CLS] and [SEP].
        `overflow` for texts longer than a row: "window" or "error". Default: "window" for a sentence-transformers folder, else "error".
        """
        texts = as_texts(text)
        self.warn_if_unknown(texts)
        out = vectors.embed(self.engine, self.reader, self.task, texts, pooling, layer, overflow, update)
        return out[0] if isinstance(text, str) else out

    def word_vectors(
        self,
        word: str,
        texts: Iterable[str],
        layer: int = -1,
        overflow: Overflow = "error",
        update: Update | None = None,
    ) -> WordVectors:
        """Return a vector for each occurrence of the word in the texts, for example to compare its senses."""
        texts = as_texts(texts)
        self.warn_if_unknown(texts)
        return vectors.word_vectors(self.engine, self.reader, word, texts, layer, overflow, update)

    @overload
    def similarity(self, a: str, b: str) -> float: ...  # type: ignore[overload-overlap]
    @overload
    def similarity(self, a: str | Iterable[str], b: str | Iterable[str]) -> np.ndarray: ...
    def similarity(self, a: str | Iterable[str], b: str | Iterable[str]) -> float | np.ndarray:
        """Return the cosine similarity of two texts; (N, M) for lists of N and M texts."""
        x, y = (l2_normalize(self.embed(as_texts(texts))) for texts in (a, b))
        if isinstance(a, str) and isinstance(b, str):
            return float((x @ y.T)[0, 0])
        return (x @ y.T)[0] if isinstance(a, str) else (x @ y.T)[:, 0] if isinstance(b, str) else x @ y.T

    def example_fills(self, store: TokenStore, count: int = 6, top_k: int = 5) -> list[dict[str, Any]]:
        """Mask a word in a few held-out sentences and fill it: [{"text", "answer", "fills": [candidate, …]}, …]."""
        self._require_head("mlm", "fill a mask")
        return self._filler.examples(store, count, top_k)

    def methods(self) -> list[str]:
        """Return the names of the methods that this model supports."""
        return available_methods(self.engine, self.task)

    def warn_if_unknown(self, texts: Any) -> None:
        """Warn if the tokenizer does not know most words of a text."""
        if self.warns:
            warn_unknown(self.tokenizer, as_texts(list(texts_in(texts))))

    def _require_head(self, head: str, action: str) -> None:
        if head not in self.heads:
            raise UserError(
                f"this model cannot {action}: its heads are {', '.join(self.heads) or 'none'}",
                expected=f"a model with the {head} head",
                hint="use the generator of this model: the folder generator/ in its model folder"
                if head == "mlm" and "generator" in self.heads
                else TRAIN_COMMANDS[head],
            )
