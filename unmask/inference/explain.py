"""explain: which tokens made the model answer as it does. Integrated gradients (Sundararajan et al. 1703.01365), by captum.

A token's score is the integral of the gradient of the answer's value on the way from a row whose words are all hidden
([MASK], or padding where there is none) to the row itself, summed over its vector. So the scores of all tokens add up to
what the words changed: value − baseline; `delta` says by how much they miss it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.batch import TOKENS_PER_FORWARD, Batch, Example
from unmask.errors import UserError
from unmask.inference import causal
from unmask.inference.answers import Attribution, Explanation, Token
from unmask.inference.engine import MAX_LOGITS, logit_offset
from unmask.inference.filling import MASKS
from unmask.inference.mask_fillers import regular_tokens
from unmask.inference.reader import Reader
from unmask.inference.torch_engine import TorchEngine
from unmask.model.generate import generate
from unmask.model.generation import GenerationConfig
from unmask.model.generation_state import decoder_start_rows as begin_with
from unmask.model.generation_state import lm_head_name
from unmask.model.model import Model
from unmask.tasks import inputs
from unmask.tasks.task import Task
from unmask.text.token_text import display_token, display_tokens

Value = Callable[[Model, Batch], Tensor]  # of every row of a batch: (B,)


@dataclass
class ExplainTarget:
    """A row, what its tokens are, and the number that is to be explained."""

    example: Example
    tokens: list[Token]
    target: str
    value: Value
    shown: int = 0  # tokens at the row's end that are never hidden: they are the answer, not what it comes from
    logits: int = 0  # that exist for a row at a time, where they are many


def explain(
    engine: TorchEngine, reader: Reader, task: Task | None, parts: Sequence[Any], target: str | None, steps: int
) -> Explanation:
    try:
        from captum.attr import LayerIntegratedGradients
    except ImportError:
        raise UserError(
            "captum, which computes explanations, is not installed", hint="pip install 'unmask[explain]'"
        ) from None
    if steps < 1:
        raise UserError(f"steps {steps}", expected="1 or more")
    if not isinstance(target, str | None):
        raise UserError(f"target {target!r} is {type(target).__name__}", expected="text", hint=f'target="{target}"')
    explained = _explain_target(engine, reader, task, parts, target)
    ids = torch.from_numpy(explained.example.input_ids)[None].to(engine.device)  # (1, T)
    segments = torch.zeros_like(ids)
    if explained.example.token_type_ids is not None:
        segments = torch.from_numpy(explained.example.token_type_ids)[None].to(engine.device)
    t = reader.tokenizer
    hidden = torch.full_like(ids, t.pad if t.mask is None else t.mask)
    kept = torch.from_numpy(t.special)[ids.cpu()]
    kept[:, ids.shape[1] - explained.shown :] = True
    hidden = torch.where(kept.to(engine.device), ids, hidden)

    model = _copy_modules(engine.model)  # captum hangs hooks into the network, which others may use meanwhile
    lock = ExitStack()  # lasts until the next forward pass: the backward pass belongs to it

    def value(ids: Tensor, segments: Tensor) -> Tensor:
        lock.close()
        lock.enter_context(engine.forward_lock())
        return explained.value(model, Batch(ids, token_type_ids=segments)).float()

    embeddings: Any = model.encoder.embeddings
    method = LayerIntegratedGradients(value, embeddings.tokens if engine.config.encoder == "bag" else embeddings)
    with lock:
        found = method.attribute(
            ids,
            baselines=hidden,
            additional_forward_args=(segments,),
            n_steps=steps,
            internal_batch_size=max(1, min(TOKENS_PER_FORWARD // ids.shape[1], MAX_LOGITS // max(1, explained.logits))),
        )
        scores = found[0].sum(-1).detach().cpu()  # (T,)
        with torch.inference_mode():
            own, base = value(torch.cat([ids, hidden]), segments.repeat(2, 1)).tolist()
    tokens = [Attribution(k.token, k.start, k.end, k.segment, s) for k, s in zip(explained.tokens, scores.tolist())]
    delta = float(scores.sum()) - (own - base)
    return Explanation(tokens, explained.target, own, base, f"integrated gradients, {steps} steps", delta)


def _copy_modules(model: Model) -> Model:
    """Other modules around the same tensors."""
    return copy.deepcopy(model, {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())})


def _explain_target(
    engine: TorchEngine, reader: Reader, task: Task | None, parts: Sequence[Any], target: str | None
) -> ExplainTarget:
    if task is not None:
        record = inputs.check_record(task.spec, parts[0] if len(parts) == 1 else tuple(parts), 1)
        texts = [record[f.key] for f in task.spec.inputs if f.key in record]
        if task.spec.output == "vector":
            return _explain_similarity(engine, reader, texts, target, cls=task.bound.pooling == "cls")
        if task.spec.output == "text":
            return _explain_generation(engine, reader, task, texts[0], target)
        return _explain_prediction(engine, reader, task, record, target)
    if len(parts) == 2 and all(isinstance(part, str) for part in parts):
        return _explain_similarity(engine, reader, parts, target)
    if len(parts) == 1 and isinstance(parts[0], str):
        writes = "lm" in engine.heads or (engine.config.logit_position == "next" and not MASKS.search(parts[0]))
        if writes:
            return _explain_generation(engine, reader, None, parts[0], target)
        if "mlm" in engine.heads:
            return _explain_mask(engine, reader, parts[0], target)
    raise UserError(
        f"nothing to explain of {len(parts)} texts; the model's heads: {', '.join(engine.heads) or 'none'}",
        expected="the answer of a task, the word at a [MASK], what is written after a text, or the likeness of two",
    )


def _explain_mask(engine: TorchEngine, reader: Reader, text: str, target: str | None) -> ExplainTarget:
    """The log-probability of a word at the first mask."""
    t = reader.tokenizer
    example, tokens = reader.encode_row([MASKS.sub(lambda _: t.mask_token, text)])
    places = [i for i, id in enumerate(example.input_ids.tolist()) if id == t.mask]
    if not places:
        raise UserError(f"no mask in the text: {text:.60}", expected=f"a text with {t.mask_token}")
    place, allowed = places[0] - logit_offset(engine.config), regular_tokens(t, engine.config.vocab_size)
    example.labels["mlm.positions"] = torch.tensor(places[:1]).numpy()
    chosen = int(engine.top_k("mlm", [example], 1, allowed)[0][0][0, 0])
    if target is not None:
        ids = {i for form in (target, f" {target}") for i in t.encode(form)[:2] if len(t.encode(form)) == 1}
        known = [i for i in ids if allowed[i]]
        if not known:
            raise UserError(
                f"the target {target!r} is not one piece of the vocabulary", expected="a word that fill gives"
            )
        scores = engine.top_k("mlm", [example], engine.config.vocab_size, allowed)[0][0][0].tolist()
        chosen = min(known, key=scores.index)  # of "states" and " states" the likelier

    def value(model: Model, batch: Batch) -> Tensor:
        return model.logits("mlm", model.encode(batch)[:, place]).float().log_softmax(-1)[:, chosen]

    return ExplainTarget(example, tokens, display_tokens(t, [chosen]).strip(), value)


def _explain_similarity(
    engine: TorchEngine, reader: Reader, texts: Sequence[str], target: str | None, cls: bool = False
) -> ExplainTarget:
    """The cosine of a text with another, whose vector stays as it is."""
    if len(texts) != 2:
        raise UserError("one text", expected="two texts: what of the first makes it like the second")
    if target is not None:
        raise UserError(f"target {target!r}", expected="none: the cosine of the two texts is explained")
    example, tokens = reader.encode_row(texts[:1])
    other = engine.hidden([reader.encode_row(texts[1:])[0]])[0]
    aim = torch.from_numpy(other[0] if cls else other.mean(0)).to(engine.device)

    def value(model: Model, batch: Batch) -> Tensor:
        states = model.encode(batch).float()
        return F.cosine_similarity(states[:, 0] if cls else states.mean(1), aim[None])

    return ExplainTarget(example, tokens, f"like: {texts[1]}", value)


def _explain_prediction(
    engine: TorchEngine, reader: Reader, task: Task, record: dict[str, Any], target: str | None
) -> ExplainTarget:
    """Values that the task's head gives, as the task names them (`Task.explain_target`)."""
    rows = [_row(reader, row) for row in task.with_overflow("truncate").encode(record, labeled=False)]
    task = task.with_single_row(engine.config.max_positions)
    outputs = task.compute_outputs(engine, [record])
    aim = task.explain_target(outputs, record, target)
    if [e.input_ids.tolist() for e in outputs.examples] != [e.input_ids.tolist() for e, _ in rows]:
        raise UserError("the text is cut into other tokens than one row of it has", expected="a shorter, plainer text")

    places: list[Any] = [(slice(None), *place) for place in aim.indices]  # of every row

    def value(model: Model, batch: Batch) -> Tensor:
        values = task.forward(model, batch)
        return torch.stack([values[place] for place in places]).sum(0)

    return ExplainTarget(*rows[aim.row], aim.name, value)


def _row(reader: Reader, row: Example) -> tuple[Example, list[Token]]:
    """A row of a task as it is read whole, and its tokens; of one that does not say its texts, the tokens without their places."""
    if row.texts:
        return reader.encode_row(row.texts)
    segments = [0] * len(row) if row.token_type_ids is None else row.token_type_ids.tolist()
    return row, [Token(display_token(reader.tokenizer, id), 0, 0, n) for id, n in zip(row.input_ids.tolist(), segments)]


def _explain_generation(
    engine: TorchEngine, reader: Reader, task: Task | None, text: str, target: str | None
) -> ExplainTarget:
    """The log-probability of what is written: a task's answer, an encoder–decoder's text, else the next token."""
    t, config, head = reader.tokenizer, engine.config, lm_head_name(engine)
    prefix = task.bound.source_prefix if task else ""
    (encoding,) = reader.encode([prefix + text])
    prompt = causal.task_prompt(task, text) if task else Example(np.array(causal.prompt(engine, t, encoding.ids)))
    if task and prompt.metadata:
        raise UserError(
            f"the text is {prompt.metadata:,} tokens too long", expected="a text that the model reads whole"
        )
    row, decodes = prompt.input_ids.tolist(), config.decoder_layers > 0
    if target is None:
        how = task.bound.generation if task else {} if decodes else {"max_new_tokens": 1}
        (new,) = generate(engine, [row], do_sample=False, **how)
    else:
        plain = t.build_inputs_with_special_tokens(t.encode(target))[0] if decodes else t.encode(target)
        new = causal.task_target(task, text, target) if task else plain
        reader.check_fits(len(new) + (0 if decodes else len(row)), 0, "the target with the text")
    if not new:
        raise UserError("nothing is written, so nothing can be explained", hint='target="…", what might be')
    first = len(prefix)
    before = next(n for n in range(len(row) + 1) if row[n : n + len(encoding)] == encoding.ids)
    tokens = [Token(t.token(id), 0, 0, 0) for id in row]
    for n, (id, (start, end)) in enumerate(zip(encoding.ids, encoding.offsets), before):
        tokens[n] = Token(display_token(t, id), max(0, start - first), max(0, end - first), 0)
    answer = torch.tensor(new, device=engine.device)
    starts = GenerationConfig(decoder_start_token_id=engine.generation.get("decoder_start_token_id", config.start_id))
    decoder = torch.tensor([*begin_with(1, starts)[0], *new[:-1]] if decodes else [], device=engine.device)

    def value(model: Model, batch: Batch) -> Tensor:
        rows = len(batch.input_ids)
        if decodes:
            batch.decoder_input_ids = decoder.expand(rows, -1)
            states = model.decode(batch, model.encode(batch))
        else:
            batch.prefix_lengths = None if config.causal else torch.full((rows,), len(row), device=engine.device)
            states = model.encode(batch)[:, len(row) - 1 :]
        logprobs = model.logits(head, states.flatten(0, 1)).float().log_softmax(-1)
        return logprobs.gather(-1, answer.repeat(rows)[:, None]).view(rows, -1).sum(-1)

    example = Example(torch.tensor(row if decodes else [*row, *new[:-1]]).numpy())
    tokens += [Token(display_token(t, id), 0, 0, 1) for id in example.input_ids[len(row) :].tolist()]
    unseen = causal.unseen(engine, t)
    plain_text = t.decode([id for id in new if id not in unseen]).strip()
    written = causal.task_text(task, prompt, new)["output"] if task else plain_text
    logits, shown = len(new) * config.vocab_size, len(example) - len(row)
    return ExplainTarget(example, tokens, written or t.token(new[0]), value, shown, logits)
