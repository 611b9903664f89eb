"""Predictor: a trained model that answers. One object, with the methods that the model's heads allow.

| method | head | answer |
|---|---|---|
| fill | mlm | what may stand under each [MASK], and the whole text filled |
| score | mlm | pseudo-log-likelihood, token by token (Salazar et al. 1910.14659) |
| score | lm, causal; mlm that predicts the next token | log-likelihood, each token after those before it |
| generate | lm, mlm | what comes next, or what an encoder–decoder makes of a text |
| next | nsp | whether B follows A (BERT 1810.04805 §3.1) |
| answer | answer | the part of a passage that answers a question |
| choose | choose | which of several texts goes with another |
| tag | tag | entities with their places in the text, or a tag per word |
| embed, similarity | none | a vector per text, or per token; the cosine of two texts |

One text in, one answer out; a list in, a list out, in the same order. Inside, texts are sorted by length and
grouped into forward passes of at most `TOKENS` tokens, and vocabulary logits are computed only where they are
read. Nothing is cut off silently: a text longer than the model's positions is refused.
"""

import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args, overload

import numpy as np
import torch
from tokenizers import Encoding
from torch import Tensor

from unmask.batch import Batch, Example, collate, groups
from unmask.data.store import TokenStore
from unmask.data.tokenizer import Tokenizer
from unmask.errors import UserError
from unmask.model import hf
from unmask.model.model import Model
from unmask.serve import causal
from unmask.serve.answers import Candidate, Continuation, Filling, Mask, Score, TokenScore
from unmask.serve.examples import LONGEST, hide_words
from unmask.serve.pieces import mask_spans, piece, put_in
from unmask.serve.texts import several, short, which
from unmask.tasks import asking
from unmask.tasks import folder as task_folder
from unmask.tasks.embed import Embed
from unmask.tasks.generate import Generate
from unmask.tasks.nearness import unit
from unmask.tasks.task import Task, Update
from unmask.train import checkpoint
from unmask.train.run import Run
from unmask.train.trainer import pick_device

ODD = 1.5  # standard deviations below a text's mean at which a token is called odd
MASKS = re.compile(r"\[MASK\]|<mask>")  # what a person may type, whatever the tokenizer calls it
TRAIN = {  # head → the command that makes a model with it
    "mlm": "unmask pretrain CORPUS --preset bert-mini --objective mlm",
    "nsp": "unmask pretrain CORPUS --preset bert-mini --objective mlm+nsp",
    "lm": "unmask pretrain CORPUS --preset gpt2-mini",
}
Pooling = Literal["auto", "mean", "cls", "token"]
Guess = tuple[np.ndarray, np.ndarray]  # of one row with M masks: ids (M, top), likeliest first; probabilities


def load(path: str | PathLike[str], device: str = "auto", say: Callable[[str], None] | None = None) -> "Predictor":
    """A model folder, a run folder, a checkpoint or a hub name → a Predictor.

    A run that is not finished gives the model of its last checkpoint, and says so (by `say`, or on stderr).
    """
    source = _model_folder(path, say or (lambda text: print(text, file=sys.stderr)))
    loaded = hf.load(source)
    if loaded.missing:  # drawn at random by hf.load, which is for training: here it would answer nonsense
        raise UserError(
            f"{source}: {', '.join(loaded.missing)} do not have the shape that config.json says",
            fix="copy or download the folder again",
        )
    try:
        tokenizer = Tokenizer.load(source)
    except UserError as error:
        fix = error.fix or f"copy the tokenizer.json that the model was trained with into {source}"
        raise UserError(error.got, valid=error.valid, fix=fix) from None
    for note in tokenizer.notes:
        (say or (lambda text: print(text, file=sys.stderr)))(note)
    task = task_folder.read(loaded.folder, loaded.config, loaded.model.heads, tokenizer)
    return Predictor(loaded.model, tokenizer, device, task)


def _model_folder(path: str | PathLike[str], say: Callable[[str], None]) -> str | Path:
    folder = Path(path).expanduser()
    if not folder.is_dir():
        return str(path)  # a name on the hub, or a mistake that hf.load explains
    if (folder / "config.json").is_file() or (folder / "bert_config.json").is_file():
        return folder
    if (folder / "model" / "config.json").is_file():  # a finished run, or a checkpoint
        return folder / "model"
    several = sorted(p.parent for base in (folder, folder / "model") for p in base.glob("*/config.json"))
    if several:  # tasks that were trained together
        raise UserError(f"{folder} holds several models", valid=", ".join(str(p) for p in several))
    if not (folder / "recipe.yaml").is_file():
        raise UserError(
            f"{folder} holds neither a model (config.json) nor a run (recipe.yaml)",
            valid="a model folder, a run folder, or owner/name on the Hugging Face hub",
        )
    last = checkpoint.latest(folder / "checkpoints", say)
    if last is None:
        raise UserError(
            f"the run {folder} has neither a model nor a checkpoint yet",
            fix=f"wait, or if it was stopped: unmask {Run(folder).verb() or 'pretrain'} --resume {folder}",
        )
    say(f"{folder} is not finished: this is its checkpoint of step {last.state['step']:,}")
    return last.model


class Predictor:
    """
    >>> from unmask.model.config import preset
    >>> from unmask.recipe import TokenizerRecipe
    >>> tokenizer = Tokenizer.train(["a cab, a cab"], TokenizerRecipe(kind="char"))
    >>> model = Model(preset("bert-tiny", vocab_size=tokenizer.size), heads=["mlm", "nsp"]).init(0)
    >>> p = Predictor(model, tokenizer)
    >>> filling = p.fill("a c[MASK]b", top=2)
    >>> len(filling.masks), len(filling.masks[0].candidates), len(filling.best)
    (1, 2, 5)
    >>> len(p.score("cab").per_token), sorted(p.next("a", "cab")), p.embed(["a", "cab"]).shape
    (3, ['next', 'other'], (2, 128))
    """

    def __init__(self, model: Model, tokenizer: Tokenizer, device: str = "auto", task: Task | None = None):
        vocabulary = model.config.vocab_size
        if tokenizer.size > vocabulary:
            raise UserError(
                f"the tokenizer has {tokenizer.size:,} tokens, the model {vocabulary:,}: they are not a pair",
                fix="put the tokenizer.json that the model was trained with beside its weights",
            )
        self.tokenizer, self.task = tokenizer, task
        self.device = pick_device(device)
        self.model = model.to(self.device).eval()
        # A special token fills nothing, and an entry that the tokenizer does not know has no name.
        ordinary = np.zeros(vocabulary, bool)
        named = [tokenizer.token(i) != "" for i in range(tokenizer.size)]
        ordinary[: tokenizer.size] = ~tokenizer.special & named
        self._ordinary = torch.from_numpy(ordinary).to(self.device)

    @property
    def heads(self) -> list[str]:
        return list(self.model.heads)

    def __repr__(self) -> str:
        c, heads = self.model.config, ", ".join(self.heads) or "none"
        return f"Predictor({c.family} {c.layers} × {c.hidden}, {c.vocab_size:,} tokens, heads: {heads})"

    # --------------------------------------------------------------------------------------------- the task

    def __call__(self, *parts: Any) -> Any:
        """The answer of a fine-tuned model to what its task asks: a text, a text and its pair, a question and a passage …

        A dict is a record; a list of texts or records gives a list of answers.
        """
        if len(parts) == 1 and isinstance(parts[0], list):
            return self.predict(parts[0])
        return self.predict([parts[0] if len(parts) == 1 else parts])[0]

    def predict(self, records: Iterable[Any], update: Update | None = None) -> list[dict[str, Any]]:
        """Answers to many records or texts, in their order."""
        task = self.need_task()
        return task.answer(self.model, asking.records(task, records), update)

    def answer(self, question: str, context: str) -> dict[str, Any]:
        """The span of the context that answers the question; "" when there is none."""
        return self._ask("answer", question, context)

    def choose(self, text: str, choices: Sequence[str], context: str = "") -> dict[str, Any]:
        """Which of the choices goes with the text, and how likely each is."""
        if isinstance(choices, str | bytes) or not isinstance(choices, Iterable):
            raise UserError(f"the choices are {type(choices).__name__}: {choices!r:.60}", valid="a list of texts")
        return self._ask("choose", text, list(choices), context)

    def tag(self, text: str) -> dict[str, Any]:
        """Entities, or parts of speech: {"entities", "tags", "words"}, with places in the text as it was given."""
        return self._ask("tag", text)

    def _ask(self, name: str, *parts: Any) -> dict[str, Any]:
        task = self.need_task()
        if task.name != name:
            raise UserError(
                f"this model is fine-tuned for the task {task.name}, not for {name}",
                fix=f"unmask finetune MODEL --task {name} --train FILE",
            )
        return self.predict([parts])[0]

    def need_task(self) -> Task:
        """The task that the model was fine-tuned for; an error when it was not."""
        if self.task is None:
            raise UserError(
                f"this model is not fine-tuned for a task; its heads: {', '.join(self.heads) or 'none'}",
                fix="unmask finetune MODEL --train FILE",
            )
        return self.task

    # --------------------------------------------------------------------------------------------- answers

    @overload
    def fill(self, text: str, top: int = 5) -> Filling: ...  # type: ignore[overload-overlap]
    @overload
    def fill(self, text: Iterable[str], top: int = 5) -> list[Filling]: ...
    def fill(self, text: str | Iterable[str], top: int = 5) -> Filling | list[Filling]:
        """The `top` candidates for every mask, and the best whole text. A mask is [MASK] or <mask>."""
        self._need("mlm", "fill a mask")
        if top < 1:
            raise UserError(f"top {top}", valid="1 or more candidates")
        mask = self.tokenizer.mask_token
        texts = [MASKS.sub(lambda _: mask, t) for t in several(text)]
        rows, spans = [], []
        for number, encoding in enumerate(self._encode(texts)):
            where = [i for i, id in enumerate(encoding.ids) if id == self.tokenizer.mask]
            if not where:
                raise UserError(
                    f"no mask in {which(texts, number)}: {short(texts[number])}",
                    valid=f"{mask}, written exactly so, wherever the model should put a word",
                    fix=f'"the president of the united {mask}"',
                )
            rows.append(self._row(encoding.ids, positions=where))
            spans.append(mask_spans(self.tokenizer, texts[number], [encoding.offsets[i] for i in where]))
        guesses = self._guess(rows, top)
        best = self._fill_all(rows, guesses)
        out = [self._filling(*parts) for parts in zip(texts, rows, spans, guesses, best)]
        return out[0] if isinstance(text, str) else out

    @overload
    def next(self, a: str, b: str) -> dict[str, float]: ...  # type: ignore[overload-overlap]
    @overload
    def next(self, a: Iterable[str], b: Iterable[str]) -> list[dict[str, float]]: ...
    @torch.inference_mode()
    def next(self, a: str | Iterable[str], b: str | Iterable[str]) -> dict[str, float] | list[dict[str, float]]:
        """Whether `b` follows `a`: {"next": p, "other": 1 − p}."""
        self._need("nsp", "tell whether a text follows another")
        firsts, seconds, t = several(a), several(b), self.tokenizer
        if len(firsts) != len(seconds):
            raise UserError(f"{len(firsts)} first and {len(seconds)} second texts", valid="as many of each")
        rows = []
        for number, (x, y) in enumerate(zip(t.encode_batch(firsts), t.encode_batch(seconds))):
            ids, segments = t.surround(x.ids, y.ids)
            self._fits(len(x) + len(y), len(ids) - len(x) - len(y), which(firsts, number, "pair"))
            rows.append(Example(np.array(ids, np.int64), segments=np.array(segments, np.int64)))
        out: list[dict[str, float]] = [{} for _ in rows]
        for group, batch, hidden in self._forward(rows):
            logits = self.model.logits("nsp", hidden, batch.mask).float()  # (B, 2): 0 = B follows A
            for i, (yes, no) in zip(group, logits.softmax(-1).tolist()):
                out[i] = {"next": yes, "other": no}
        return out[0] if isinstance(a, str) else out

    @overload
    def score(self, text: str) -> Score: ...  # type: ignore[overload-overlap]
    @overload
    def score(self, text: Iterable[str]) -> list[Score]: ...
    @torch.inference_mode()
    def score(self, text: str | Iterable[str]) -> Score | list[Score]:
        """How likely each token is to the model when it alone is hidden and all others are seen.

        To a model that predicts the next token (GPT; an encoder trained by clm, prefix or hybrid): when only those
        before it are seen.
        [UNK] is scored as what it is; other special tokens typed in the text are only seen.
        """
        config = self.model.config
        left = "lm" in self.model.heads if config.causal else config.predicts == "next"
        if not config.causal or not left:
            self._need("mlm", "score a text")
        texts, t = several(text), self.tokenizer
        encodings, where = self._encode(texts), []
        for number, encoding in enumerate(encodings):
            if t.mask in encoding.ids and not left:
                raise UserError(
                    f"a mask in {which(texts, number)}: a hidden word has no score",
                    fix=f'unmask fill MODEL "{short(texts[number])}"',
                )
            where.append([i for i, id in enumerate(encoding.ids) if id == t.unk or not t.special[id]])
            if not where[-1]:
                raise UserError(f"no word in {which(texts, number)}: {short(texts[number])!r}")
        if left:
            known = causal.log_likelihoods(self.model, t, [encoding.ids for encoding in encodings])
            parts = [logprobs[positions] for logprobs, positions in zip(known, where)]
            out = [replace(self._score(*answer), pseudo=False) for answer in zip(texts, encodings, where, parts)]
            return out[0] if isinstance(text, str) else out
        jobs = [(number, i) for number, positions in enumerate(where) for i in positions]

        def hide(job: tuple[int, int]) -> Example:
            row = self._row(encodings[job[0]].ids, positions=[job[1]])
            position = row.labels["mlm.positions"]
            row.labels["mlm.targets"] = row.ids[position]
            row.ids[position] = t.mask
            return row

        logprobs = np.empty(len(jobs))
        for group, batch, hidden in self._forward(jobs, hide, [len(encodings[number]) + 2 for number, _ in jobs]):
            targets = batch.labels["mlm.targets"][:, None]
            logprobs[group] = self._log_probabilities(hidden, batch).gather(1, targets)[:, 0].cpu().numpy()
        parts = np.split(logprobs, np.cumsum([len(positions) for positions in where])[:-1])
        out = [self._score(*answer) for answer in zip(texts, encodings, where, parts)]
        return out[0] if isinstance(text, str) else out

    @overload
    def generate(self, text: str, **settings: Any) -> Continuation: ...  # type: ignore[overload-overlap]
    @overload
    def generate(self, text: Iterable[str], **settings: Any) -> list[Continuation]: ...
    def generate(self, text: str | Iterable[str], **settings: Any) -> Continuation | list[Continuation]:
        """Continue a text, or give what an encoder–decoder makes of it. `settings`: see `model/generation.py`.

        A model fine-tuned to generate answers the text, with its task's prefix and settings.
        """
        if not {"lm", "mlm"} & set(self.model.heads):
            self._need("lm", "continue a text")
        texts = several(text)
        if isinstance(self.task, Generate):
            out = causal.answers(self.model, self.task, texts, **settings)
            return out[0] if isinstance(text, str) else out
        rows = [causal.prompt(self.model, self.tokenizer, encoding.ids) for encoding in self._encode(texts)]
        out = causal.continuations(self.model, self.tokenizer, texts, rows, **settings)
        return out[0] if isinstance(text, str) else out

    @overload
    def embed(self, text: str | Iterable[str], pooling: Literal["auto", "mean", "cls"] = "auto") -> np.ndarray: ...
    @overload
    def embed(self, text: str, pooling: Literal["token"]) -> np.ndarray: ...  # type: ignore[overload-overlap]
    @overload
    def embed(self, text: Iterable[str], pooling: Literal["token"]) -> list[np.ndarray]: ...
    @torch.inference_mode()
    def embed(self, text: str | Iterable[str], pooling: Pooling = "auto") -> np.ndarray | list[np.ndarray]:
        """Vectors of the last layer, float32.

        `auto`: as a folder of sentence vectors says (of length 1, long texts by windows), else `mean`.
        `mean` (over all tokens, [CLS] and [SEP] too) and `cls`: (D,) for a text, (N, D) for a list.
        `token`: (T, D) for each text, [CLS] first and [SEP] last.
        """
        if pooling not in get_args(Pooling):
            raise UserError(f"pooling {pooling!r}", valid=", ".join(get_args(Pooling)))
        if pooling == "auto" and isinstance(self.task, Embed):
            found = self.task.vectors(self.model, several(text))
            return found[0] if isinstance(text, str) else found
        pooling = "mean" if pooling == "auto" else pooling
        rows = [self._row(encoding.ids) for encoding in self._encode(several(text))]
        out = [np.empty(0, np.float32) for _ in rows]
        for group, _, hidden in self._forward(rows):
            for i, vectors in zip(group, hidden.float().cpu().numpy()):
                vectors = vectors[: len(rows[i])]  # (T, D) without the padding
                out[i] = {"mean": vectors.mean(0), "cls": vectors[0].copy(), "token": vectors.copy()}[pooling]
        if isinstance(text, str):
            return out[0]
        if pooling == "token":
            return out
        return np.stack(out) if out else np.empty((0, self.model.config.hidden), np.float32)

    @overload
    def similarity(self, a: str, b: str) -> float: ...  # type: ignore[overload-overlap]
    @overload
    def similarity(self, a: str | Iterable[str], b: str | Iterable[str]) -> np.ndarray: ...
    def similarity(self, a: str | Iterable[str], b: str | Iterable[str]) -> float | np.ndarray:
        """Cosine of two texts' vectors; for lists of N and M texts, (N, M) of them."""
        x, y = (unit(self.embed(several(texts))) for texts in (a, b))
        if isinstance(a, str) and isinstance(b, str):
            return float((x @ y.T)[0, 0])
        return (x @ y.T)[0] if isinstance(a, str) else (x @ y.T)[:, 0] if isinstance(b, str) else x @ y.T

    def example_fills(self, store: TokenStore, count: int = 6, top: int = 5) -> list[dict[str, Any]]:
        """A word hidden in a few held-out sentences: [{"text", "answer", "fills": [candidate, …]}, …]."""
        self._need("mlm", "fill a mask")
        rows = list(hide_words(store, count, min(LONGEST, self.model.config.max_positions - 2)))
        mask, out = self.tokenizer.mask_token, []
        before, _, after = self.tokenizer.around[0]
        for row, (ids, probabilities) in zip(rows, self._guess(rows, top)):
            answer = piece(self.tokenizer, int(row.labels["mlm.targets"][0]))
            text = self.tokenizer.decode(row.ids[len(before) : len(row) - len(after)])
            start = text.index(mask)
            if answer.startswith(" ") and start:  # the mask took the blank of the piece that it hides
                text, start = f"{text[:start]} {text[start:]}", start + 1
            (span,) = mask_spans(self.tokenizer, text, [(start, start + len(mask))])
            fills = self._candidates(ids[0], probabilities[0], text, span)
            out.append({"text": text, "answer": answer, "fills": [asdict(c) for c in fills]})
        return out

    # ---------------------------------------------------------------------------------------------- inside

    def _need(self, head: str, what: str) -> None:
        if head not in self.model.heads:
            raise UserError(
                f"this model cannot {what}: its heads are {', '.join(self.heads) or 'none'}",
                valid=f"a model with the {head} head",
                fix="its generator can: name the folder generator/ inside its model folder"
                if head == "mlm" and "generator" in self.model.heads
                else TRAIN[head],
            )

    def _encode(self, texts: list[str]) -> list[Encoding]:
        """Without special tokens, but every one known to fit with them."""
        encodings = self.tokenizer.encode_batch(texts)
        for number, encoding in enumerate(encodings):
            self._fits(len(encoding), 2, which(texts, number))
        return encodings

    def _fits(self, tokens: int, special: int, what: str) -> None:
        most = self.model.config.max_positions
        if tokens + special > most:
            raise UserError(
                f"{what} has {tokens:,} tokens and {special} special ones; the model reads {most:,}",
                valid=f"at most {most - special:,} tokens; nothing is cut off silently",
                fix="give it in parts",
            )

    def _row(self, ids: Sequence[int], positions: Sequence[int] = ()) -> Example:
        """[CLS] ids [SEP]; `positions` are those in `ids`."""
        first = [] if self.tokenizer.cls is None else [self.tokenizer.cls]
        row = np.array([*first, *ids, self.tokenizer.sep], np.int64)
        return Example(row, labels={"mlm.positions": np.array(positions, np.int64) + len(first)})

    def _forward(
        self, items: Sequence[Any], make: Callable[[Any], Example] | None = None, lengths: Sequence[int] = ()
    ) -> Iterator[tuple[list[int], Batch, Tensor]]:
        """(indices of items, their batch, hidden states (B, T, D)), every item once.

        `items` are rows, or what `make` turns into rows of these `lengths` when their batch comes: scoring a
        text of T tokens takes T rows, which for many texts would not fit in memory.
        """
        for group in groups(lengths or [len(item) for item in items]):
            rows = [items[i] if make is None else make(items[i]) for i in group]
            batch = collate(rows, self.tokenizer.pad).to(self.device)
            yield group, batch, self.model.encode(batch)

    def _log_probabilities(self, hidden: Tensor, batch: Batch) -> Tensor:
        """(n, V) at the batch's n chosen positions, and nowhere else."""
        before = int(self.model.config.predicts == "next")
        chosen = hidden.flatten(0, 1).index_select(0, batch.labels["mlm.positions"] - before)
        return self.model.logits("mlm", chosen).float().log_softmax(-1)

    @torch.inference_mode()
    def _guess(self, rows: list[Example], top: int) -> list[Guess]:
        top = min(top, int(self._ordinary.sum()))
        out: list[Guess] = [(np.empty(0), np.empty(0))] * len(rows)
        for group, batch, hidden in self._forward(rows):
            logprobs = self._log_probabilities(hidden, batch).masked_fill(~self._ordinary, -math.inf)
            values, ids = logprobs.topk(top)
            counts = [len(rows[i].labels["mlm.positions"]) for i in group]
            for i, p, k in zip(group, values.exp().cpu().split(counts), ids.cpu().split(counts)):
                out[i] = k.numpy(), p.numpy()
        return out

    def _fill_all(self, rows: list[Example], guesses: list[Guess]) -> list[list[int]]:
        """An id for every mask: a row's surest one is filled, the model asked again, until none is left."""
        ids = [row.ids.copy() for row in rows]
        left = [row.labels["mlm.positions"] for row in rows]
        unfinished = list(range(len(rows)))
        while unfinished:
            for r, (tokens, probabilities) in zip(unfinished, guesses):
                surest = int(probabilities[:, 0].argmax())
                ids[r][left[r][surest]] = tokens[surest, 0]
                left[r] = np.delete(left[r], surest)
            unfinished = [r for r in unfinished if len(left[r])]
            guesses = self._guess([Example(ids[r], labels={"mlm.positions": left[r]}) for r in unfinished], 1)
        return [filled[row.labels["mlm.positions"]].tolist() for filled, row in zip(ids, rows)]

    def _filling(self, text: str, row: Example, spans: list[tuple[int, int]], guess: Guess, best: list[int]) -> Filling:
        masks = [
            Mask(int(position), span[0], span[1], self._candidates(ids, probabilities, text, span))
            for position, span, ids, probabilities in zip(row.labels["mlm.positions"], spans, *guess)
        ]
        filled, where = put_in(self.tokenizer, text, spans, best)
        return Filling(text, masks, filled, where)

    def _candidates(
        self, ids: np.ndarray, probabilities: np.ndarray, text: str, span: tuple[int, int]
    ) -> list[Candidate]:
        return [
            Candidate(piece(self.tokenizer, i), i, p, put_in(self.tokenizer, text, [span], [i])[0])
            for i, p in zip(ids.tolist(), probabilities.tolist())
        ]

    def _score(self, text: str, encoding: Encoding, where: list[int], logprobs: np.ndarray) -> Score:
        floor = float(logprobs.mean() - ODD * logprobs.std())
        per_token = []
        for i, logprob in zip(where, logprobs.tolist()):
            id, (start, end) = encoding.ids[i], encoding.offsets[i]
            per_token.append(TokenScore(piece(self.tokenizer, id), id, logprob, start, end, logprob < floor))
        return Score(text, float(logprobs.sum()), float(np.exp(-logprobs.mean())), per_token)
