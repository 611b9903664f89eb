"""Token attributions by integrated gradients (Sundararajan et al. 1703.01365), computed by captum.

The path of integration leads from a baseline row, in which every word is [MASK] (or padding if there is no mask token), to the
row itself. A token's score is the integrated gradient summed over its embedding. The scores add up to value − baseline, except
for the error of the numerical integration, `delta`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
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
from unmask.model.generation_state import decoder_start_rows, lm_head_name
from unmask.model.model import Model
from unmask.tasks import inputs
from unmask.tasks.blend import Blend
from unmask.tasks.task import Task
from unmask.text.token_text import display_token, display_tokens

ValueFunction = Callable[[Model, Batch], Tensor]  # the explained value of each row: (B,)


@dataclass
class ExplainTarget:
    """A row, its tokens, and the value to explain."""

    example: Example
    tokens: list[Token]
    target: str
    value: ValueFunction
    num_target_tokens: int = 0  # number of tokens at the end of the row that belong to the target and are never masked
    logits_per_row: int = 0  # limits the batch size for generated text
    finish: Callable[[Explanation], Explanation] = lambda explanation: explanation  # adds what is not in the network


def explain(
    engine: TorchEngine, reader: Reader, task: Task | None, parts: Sequence[Any], target: str | None, steps: int
) -> Explanation:
    try:
        from captum.attr import LayerIntegratedGradients
    except ImportError:
        raise UserError("explain needs captum, which is not installed", hint="pip install 'unmask[explain]'") from None
    if steps < 1:
        raise UserError(f"invalid steps {steps}", expected="1 or more")
    if not isinstance(target, str | None):
        raise UserError(f"target {target!r} is {type(target).__name__}", expected="a str", hint=f'target="{target}"')
    explained = _explain_target(engine, reader, task, parts, target)
    ids = torch.from_numpy(explained.example.input_ids)[None].to(engine.device)  # (1, T)
    segments = torch.zeros_like(ids)
    if explained.example.token_type_ids is not None:
        segments = torch.from_numpy(explained.example.token_type_ids)[None].to(engine.device)
    t = reader.tokenizer
    fixed = torch.from_numpy(t.special)[ids.cpu()]  # (1, T): equal in the row and the baseline
    fixed[:, ids.shape[1] - explained.num_target_tokens :] = True
    baseline = torch.where(fixed.to(engine.device), ids, t.pad if t.mask is None else t.mask)

    model = _copy_modules(engine.model)  # captum adds hooks to the modules, and other threads may use the model
    lock = ExitStack()  # held until the next forward pass, because the backward pass belongs to it

    def value(ids: Tensor, segments: Tensor) -> Tensor:
        lock.close()
        lock.enter_context(engine.forward_lock())
        return explained.value(model, Batch(ids, token_type_ids=segments)).float()

    embeddings: Any = model.encoder.embeddings
    method = LayerIntegratedGradients(value, embeddings.tokens if engine.config.encoder == "bag" else embeddings)
    batch_size = max(1, min(TOKENS_PER_FORWARD // ids.shape[1], MAX_LOGITS // max(1, explained.logits_per_row)))
    with lock:
        attributions = method.attribute(
            ids, baseline, additional_forward_args=(segments,), n_steps=steps, internal_batch_size=batch_size
        )
        scores = attributions[0].sum(-1).detach().cpu()  # (T,)
        with torch.inference_mode():
            of_row, of_baseline = value(torch.cat([ids, baseline]), segments.repeat(2, 1)).tolist()
    tokens = [Attribution(k.token, k.start, k.end, k.segment, s) for k, s in zip(explained.tokens, scores.tolist())]
    delta = float(scores.sum()) - (of_row - of_baseline)
    name = f"integrated gradients, {steps} steps"
    return explained.finish(Explanation(tokens, explained.target, of_row, of_baseline, name, delta))


def _copy_modules(model: Model) -> Model:
    """Return new modules that share the tensors of `model`."""
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
        if "lm" in engine.heads or (engine.config.logit_position == "next" and not MASKS.search(parts[0])):
            return _explain_generation(engine, reader, None, parts[0], target)
        if "mlm" in engine.heads:
            return _explain_mask(engine, reader, parts[0], target)
    raise UserError(
        f"nothing to explain for {len(parts)} inputs; the model's heads: {', '.join(engine.heads) or 'none'}",
        expected="the input of a fine-tuned model, a text with [MASK], a prompt, or two texts to compare",
    )


def _explain_mask(engine: TorchEngine, reader: Reader, text: str, target: str | None) -> ExplainTarget:
    """Explain the log-probability of a word at the first mask."""
    t = reader.tokenizer
    example, tokens = reader.encode_row([MASKS.sub(lambda _: t.mask_token, text)])
    positions = [i for i, id in enumerate(example.input_ids.tolist()) if id == t.mask]
    if not positions:
        raise UserError(
            f"no mask in the text: {text:.60}",
            expected=f"a text with {t.mask_token} in place of the word to predict",
            hint=f'unmask explain MODEL "the president of the united {t.mask_token}"',
        )
    allowed = regular_tokens(t, engine.config.vocab_size)
    logit_position = positions[0] - logit_offset(engine.config)
    example.labels["mlm.positions"] = np.array(positions[:1])
    if target is None:
        explained = int(engine.top_k("mlm", [example], 1, allowed)[0][0][0, 0])
    else:
        encoded = [t.encode(form) for form in (target, f" {target}")]
        ids = [ids[0] for ids in encoded if len(ids) == 1 and allowed[ids[0]]]
        if not ids:
            raise UserError(f"the target {target!r} is not a single token", expected="a word that fill returns")
        ranked = engine.top_k("mlm", [example], engine.config.vocab_size, allowed)[0][0][0].tolist()
        explained = min(ids, key=ranked.index)  # the more likely of "states" and " states"

    def value(model: Model, batch: Batch) -> Tensor:
        return model.logits("mlm", model.encode(batch)[:, logit_position]).float().log_softmax(-1)[:, explained]

    return ExplainTarget(example, tokens, display_tokens(t, [explained]).strip(), value)


def _explain_similarity(
    engine: TorchEngine, reader: Reader, texts: Sequence[str], target: str | None, cls: bool = False
) -> ExplainTarget:
    """Explain the cosine similarity of the first text to the second, whose vector is constant."""
    if len(texts) != 2:
        raise UserError("one text for a model of text vectors", expected="two texts: their similarity is explained")
    if target is not None:
        raise UserError(f"target {target!r} given for two texts", hint="remove it: their similarity is explained")
    example, tokens = reader.encode_row(texts[:1])
    other = engine.hidden([reader.encode_row(texts[1:])[0]])[0]  # (T, D)
    vector = torch.from_numpy(other[0] if cls else other.mean(0)).to(engine.device)

    def value(model: Model, batch: Batch) -> Tensor:
        states = model.encode(batch).float()
        return F.cosine_similarity(states[:, 0] if cls else states.mean(1), vector[None])

    return ExplainTarget(example, tokens, f"similarity to: {texts[1]}", value)


def _explain_prediction(
    engine: TorchEngine, reader: Reader, task: Task, record: dict[str, Any], target: str | None
) -> ExplainTarget:
    """Explain the sum of the head's outputs that `Task.explain_target` selects."""
    rows = [_with_tokens(reader, row) for row in task.with_overflow("truncate").encode(record, labeled=False)]
    task = task.with_single_row(engine.config.max_positions)
    outputs = task.compute_outputs(engine, [record])
    selected = task.explain_target(outputs, record, target)
    if [e.input_ids.tolist() for e in outputs.examples] != [e.input_ids.tolist() for e, _ in rows]:
        raise UserError(
            "the task splits this text into tokens differently than the tokenizer does, so it cannot be explained",
            hint="shorten the text, or remove unusual characters",
        )
    indices: list[Any] = [(slice(None), *index) for index in selected.indices]  # indices of every row

    def value(model: Model, batch: Batch) -> Tensor:
        values = task.forward(model, batch)
        return torch.stack([values[index] for index in indices]).sum(0)

    explain_target = ExplainTarget(*rows[selected.row], selected.name, value)
    if task.blend is not None:
        texts, label = explain_target.example.texts or outputs.examples[0].texts, selected.indices[0][0]
        explain_target.finish = partial(_add_blend, task.blend, texts, label)
    return explain_target


def _add_blend(blend: Blend, texts: Sequence[str], label: int, encoder: Explanation) -> Explanation:
    """Add the contributions of n-grams to the tokens that they overlap."""
    weight, (constant, spans) = blend.weights["encoder"], blend.attributions(texts, label)
    scores = [weight * token.score for token in encoder.tokens]
    for number, start, end, value in spans:
        overlaps = [
            max(0, min(end, token.end) - max(start, token.start)) if token.segment == number else 0
            for token in encoder.tokens
        ]
        for n, overlap in enumerate(overlaps):
            scores[n] += value * overlap / max(1, sum(overlaps))
    value = weight * encoder.value + constant + sum(value for *_, value in spans)
    baseline = weight * encoder.baseline + constant
    return replace(
        encoder, value=value, baseline=baseline, delta=sum(scores) - (value - baseline),
        tokens=[replace(token, score=score) for token, score in zip(encoder.tokens, scores)],
        method=f"{encoder.method}, and weights of n-grams",
    )  # fmt: skip


def _with_tokens(reader: Reader, row: Example) -> tuple[Example, list[Token]]:
    """Return a task's row and its tokens. The tokens have no offsets if the row does not have its texts."""
    if row.texts:
        return reader.encode_row(row.texts)
    segments = [0] * len(row) if row.token_type_ids is None else row.token_type_ids.tolist()
    return row, [Token(display_token(reader.tokenizer, id), 0, 0, n) for id, n in zip(row.input_ids.tolist(), segments)]


def _explain_generation(
    engine: TorchEngine, reader: Reader, task: Task | None, text: str, target: str | None
) -> ExplainTarget:
    """Explain the log-probability of generated text: a task's or an encoder–decoder's output, or else the next token."""
    t, config, head = reader.tokenizer, engine.config, lm_head_name(engine)
    has_decoder = config.decoder_layers > 0
    prefix = task.bound.source_prefix if task else ""
    (encoding,) = reader.encode([prefix + text])
    if task:
        prompt = causal.encode_task_prompt(task, text)
        if prompt.metadata:
            raise UserError(f"the text is {prompt.metadata:,} tokens too long for the model", hint="shorten the text")
    else:
        prompt = Example(np.array(causal.build_prompt(engine, t, encoding.ids)))
    row = prompt.input_ids.tolist()
    if target is None:
        options = task.bound.generation if task else {} if has_decoder else {"max_new_tokens": 1}
        (generated,) = generate(engine, [row], do_sample=False, **options)
    else:
        plain = t.build_inputs_with_special_tokens(t.encode(target))[0] if has_decoder else t.encode(target)
        generated = causal.encode_task_target(task, text, target) if task else plain
        reader.check_fits(len(generated) + (0 if has_decoder else len(row)), 0, "the target with the text")
    if not generated:
        raise UserError("the model generates nothing for this text", hint='pass the text to explain: target="…"')
    tokens = [Token(t.token(id), 0, 0, 0) for id in row]
    first = next(n for n in range(len(row) + 1) if row[n : n + len(encoding)] == encoding.ids)
    for n, (id, (start, end)) in enumerate(zip(encoding.ids, encoding.offsets), first):
        tokens[n] = Token(display_token(t, id), max(0, start - len(prefix)), max(0, end - len(prefix)), 0)
    targets = torch.tensor(generated, device=engine.device)
    starts = GenerationConfig(decoder_start_token_id=engine.generation.get("decoder_start_token_id", config.start_id))
    decoder_row = [*decoder_start_rows(1, starts)[0], *generated[:-1]] if has_decoder else []
    decoder_ids = torch.tensor(decoder_row, device=engine.device)

    def value(model: Model, batch: Batch) -> Tensor:
        rows = len(batch.input_ids)
        if has_decoder:
            batch.decoder_input_ids = decoder_ids.expand(rows, -1)
            states = model.decode(batch, model.encode(batch))
        else:
            batch.prefix_lengths = None if config.causal else torch.full((rows,), len(row), device=engine.device)
            states = model.encode(batch)[:, len(row) - 1 :]
        logprobs = model.logits(head, states.flatten(0, 1)).float().log_softmax(-1)
        return logprobs.gather(-1, targets.repeat(rows)[:, None]).view(rows, -1).sum(-1)

    appended = [] if has_decoder else generated[:-1]
    tokens += [Token(display_token(t, id), 0, 0, 1) for id in appended]
    if task:
        name = causal.decode_task_output(task, prompt, generated)["output"]
    else:
        skipped = causal.non_text_ids(engine, t)
        name = t.decode([id for id in generated if id not in skipped]).strip()
    example, logits_per_row = Example(np.array([*row, *appended])), len(generated) * config.vocab_size
    return ExplainTarget(example, tokens, name or t.token(generated[0]), value, len(appended), logits_per_row)
