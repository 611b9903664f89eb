"""Predictor: a trained model that answers. One object, with the methods that the model's heads allow.

| method | head | answer |
|---|---|---|
| fill | mlm | what may stand under each [MASK], and the whole text filled |
| score | mlm | pseudo-log-likelihood, token by token (Salazar et al. 1910.14659) |
| score | lm, causal; mlm that predicts the next token | log-likelihood, each token after those before it |
| generate | lm, mlm | what comes next, or what an encoder–decoder makes of a text |
| next_sentence | nsp | whether B follows A (BERT 1810.04805 §3.1) |
| classify, tag, answer, choose, rank | the task's | what a fine-tuned model answers (task_methods.py) |
| embed, similarity, word_vectors | none | vectors of texts, of tokens, of a word |
| attention, explain | none | a look inside (introspection.py) |

One text in, one answer out; a list in, a list out, in the same order. What computes is an Engine (engine.py); how each
method works is in a file of its own (filling, scoring, vectors, causal). Inside, texts are sorted by length and grouped
into forward passes. Nothing is cut off silently: a text longer than the model's positions is refused.
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
from unmask.inference.filling import Filler, FillSettings
from unmask.inference.folders import model_folder
from unmask.inference.inputs import as_texts, texts_in
from unmask.inference.introspection import IntrospectionMixin
from unmask.inference.methods import available_methods
from unmask.inference.onnx_engine import is_export
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

TRAIN = {  # head → the command that makes a model with it
    "mlm": "unmask pretrain CORPUS --preset bert-mini --objective mlm",
    "nsp": "unmask pretrain CORPUS --preset bert-mini --objective mlm+nsp",
    "lm": "unmask pretrain CORPUS --preset gpt2-mini",
}
BACKENDS = ("auto", "torch", "onnx")


@activity("loading the model")
def load(
    path: str | PathLike[str], device: str = "auto", say: Callable[[str], None] | None = None, backend: str = "auto"
) -> Predictor:
    """A model folder, a run folder, a checkpoint or a hub name → a Predictor.

    A run that is not finished gives the model of its last checkpoint, and says so (by `say`, or on stderr).
    `backend`: "onnx" answers from an exported graph (unmask export), without torch; "auto" does where the folder is one.
    """
    if backend not in BACKENDS:
        raise UserError(f"backend {backend!r}", expected=", ".join(BACKENDS))
    tell = say or Console().say
    source = model_folder(path, tell)
    if backend == "auto":
        backend = "onnx" if is_export(source) else "torch"
    engine: Engine
    engine, folder = import_module(f"unmask.inference.{backend}_engine").open_engine(source, device)
    try:
        tokenizer = Tokenizer.load(source, engine.config.vocab_size)
    except UserError as error:
        hint = error.hint or f"copy the tokenizer.json that the model was trained with into {source}"
        raise UserError(error.message, expected=error.expected, hint=hint) from None
    for note in tokenizer.notes:
        tell(note)
    return Predictor(engine, tokenizer, task=task_folder.load_task(folder, engine.config, engine.heads, tokenizer))


class Predictor(TaskMethods, IntrospectionMixin):
    """
    >>> from unmask.model.config import preset
    >>> from unmask.model.model import Model
    >>> from unmask.recipe import TokenizerRecipe
    >>> tokenizer = Tokenizer.train(["a cab, a cab"], TokenizerRecipe(kind="char"))
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
        self.warns = True  # of texts that the tokenizer does not know (unknown.py)
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
        """The `top_k` candidates for every mask, and the best whole text. A mask is [MASK] or <mask>.

        `num_beams`: fill all masks jointly by beam search of this width (0: each mask independently). `max_subwords`: the
        most subwords that a mask may become. `candidates`: the only words allowed (see words.py for how they are scored).
        `overflow`: "error", or "window" to read the part of a long text around its masks. `update`: called as (done, total, "").
        """
        self._need("mlm", "fill a mask")
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
        """Whether `b` follows `a`: {"next": p, "other": 1 − p}."""
        self._need("nsp", "tell whether a text follows another")
        firsts, seconds = as_texts(a), as_texts(b)
        self.warn_if_unknown([*firsts, *seconds])
        if len(firsts) != len(seconds):
            raise UserError(f"{len(firsts)} first and {len(seconds)} second texts", expected="as many of each")
        out = []
        for logits in self.engine.logits("nsp", self.reader.pairs(firsts, seconds)):  # (2,): 0 = B follows A
            yes, no = np.exp(logits - np.logaddexp(*logits)).tolist()
            out.append({"next": yes, "other": no})
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
        """How likely each token is to the model when it is hidden and the others are seen; `method`: see scoring.py.

        To a model that predicts the next token (GPT; an encoder trained by clm, prefix or hybrid): when only those
        before it are seen.
        [UNK] is scored as what it is; other special tokens typed in the text are only seen.
        """
        if not (self.config.causal and scoring.is_left_to_right(self.engine)):
            self._need("mlm", "score a text")
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
        """How often the better sentence of a pair is the likelier; a file, a folder or rows in BLiMP's form (pairs.py)."""
        return pairs.judge(pairs.read(source), lambda texts: self.score(texts, method, update=update))

    @overload
    def generate(self, text: str, **settings: Any) -> Continuation: ...  # type: ignore[overload-overlap]
    @overload
    def generate(self, text: Iterable[str], **settings: Any) -> list[Continuation]: ...
    def generate(self, text: str | Iterable[str], **settings: Any) -> Continuation | list[Continuation]:
        """Continue a text, or give what an encoder–decoder makes of it. `settings`: see `model/generation.py`.

        A model fine-tuned to generate answers the text, with its task's prefix and settings.
        """
        if not {"lm", "mlm"} & set(self.heads):
            self._need("lm", "continue a text")
        texts = as_texts(text)
        self.warn_if_unknown(texts)
        if self.task is not None and self.task.spec.output == "text":
            out = causal.answers(self.engine, self.task, texts, **settings)
        else:
            out = causal.continuations(self.engine, self.reader, texts, **settings)
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
        """Vectors of what the model gives (layer -1), of its embeddings (0), or of any layer between; float32.

        `auto`: as a folder of sentence vectors says (of length 1), else `mean`.
        `mean` (over all tokens, [CLS] and [SEP] too) and `cls`: (D,) for a text, (N, D) for a list.
        `token`: (T, D) for each text, [CLS] first and [SEP] last.
        `overflow` for texts longer than the model reads: "window" or "error". Default: "window" for a sentence-transformers folder, else "error".
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
        """The vectors of a word wherever it stands in the texts: a word of two senses has two kinds of them."""
        given = as_texts(texts)
        self.warn_if_unknown(given)
        return vectors.word_vectors(self.engine, self.reader, word, given, layer, overflow, update)

    @overload
    def similarity(self, a: str, b: str) -> float: ...  # type: ignore[overload-overlap]
    @overload
    def similarity(self, a: str | Iterable[str], b: str | Iterable[str]) -> np.ndarray: ...
    def similarity(self, a: str | Iterable[str], b: str | Iterable[str]) -> float | np.ndarray:
        """Cosine of two texts' vectors; for lists of N and M texts, (N, M) of them."""
        x, y = (l2_normalize(self.embed(as_texts(texts))) for texts in (a, b))
        if isinstance(a, str) and isinstance(b, str):
            return float((x @ y.T)[0, 0])
        return (x @ y.T)[0] if isinstance(a, str) else (x @ y.T)[:, 0] if isinstance(b, str) else x @ y.T

    def example_fills(self, store: TokenStore, count: int = 6, top_k: int = 5) -> list[dict[str, Any]]:
        """A word hidden in a few held-out sentences: [{"text", "answer", "fills": [candidate, …]}, …]."""
        self._need("mlm", "fill a mask")
        return self._filler.examples(store, count, top_k)

    def methods(self) -> list[str]:
        """What this model can do."""
        return available_methods(self.engine, self.task)

    def warn_if_unknown(self, texts: Any) -> None:
        """Warns of texts that the tokenizer does not know."""
        if self.warns:
            warn_unknown(self.tokenizer, as_texts(list(texts_in(texts))))

    def _need(self, head: str, what: str) -> None:
        if head not in self.heads:
            raise UserError(
                f"this model cannot {what}: its heads are {', '.join(self.heads) or 'none'}",
                expected=f"a model with the {head} head",
                hint="its generator can: name the folder generator/ inside its model folder"
                if head == "mlm" and "generator" in self.heads
                else TRAIN[head],
            )
