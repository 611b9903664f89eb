"""Checks of an export: the exported files are loaded and compared with the model. If they differ, the export fails.

| precision | compared                                                              | fails                                       |
|-----------|-----------------------------------------------------------------------|---------------------------------------------|
| fp32      | every output, on sequences of many lengths, padded and alone          | a difference above 1e-4 (for outputs beyond ±10: 1e-5 of the largest) |
| int8      | without a data file: predictions for a few sentences (`check_drift`)  | 5 points of probability moved; for vectors, a cosine below 0.99 |
| both      | with a data file: the model's metric on it                            | a decrease of more than 0.5 points          |
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from unmask.batch import Example
from unmask.errors import UserError
from unmask.inference.engine import Engine, logit_offset
from unmask.model.config import ModelConfig
from unmask.model.generation import GenerationConfig
from unmask.model.head_spec import HEADS
from unmask.numeric import log_softmax
from unmask.seeds import generator
from unmask.tasks.task import Task
from unmask.text.tokenizer import Tokenizer

MAX_DIFFERENCE = 1e-4
MAX_DRIFT, MAX_VECTOR_DRIFT = 0.05, 0.01
MAX_POINTS = 0.5  # maximum decrease of a metric, in points
DECODER_STEPS = 3  # decoding steps to compare
SENTENCES = (
    "The weather was bad, so they stayed at home and read.",
    "I would not recommend this film to anyone; it was far too long.",
    "In 1998 the company opened its first office in Paris.",
    "How do I sort a list of numbers in Python?",
    "The list is sorted in place, and the method returns None.",
    "She bought 3 apples, 2 pears and a bottle of water for $4.50.",
    "An excellent, moving story with a wonderful cast!",
    "今天天气很好，我们去公园散步吧。",
    "The president met the prime minister of Japan on Tuesday.",
    "Water boils at one hundred degrees.",
    "这家饭店的菜又贵又难吃，不会再来了。",
    "Who wrote the book that lies on the table?",
)  # varied sentences, for an export without --data

Outputs = dict[str, list[np.ndarray]]  # name → values per row


def check_equal(model: Engine, graph: Engine, task: Task | None, pad: int) -> float:
    """Return the largest difference of any output; raise UserError if it is too large."""
    largest = 0.0
    for rows in random_rows(model.config):
        reference, exported = outputs(model, task, rows, pad), outputs(graph, task, rows, pad)
        for name, values in reference.items():
            allowed = MAX_DIFFERENCE * max(1.0, max(float(np.abs(v).max(initial=0.0)) for v in values) / 10)
            for n, (a, b) in enumerate(zip(values, exported[name], strict=True)):
                difference = float(np.abs(a - b).max(initial=0.0)) if a.shape == b.shape else np.inf
                if not difference <= allowed:  # also for NaN
                    raise UserError(
                        f"the ONNX output of {name} differs from PyTorch by {difference:.2g} on a sequence of "
                        f"{len(rows[n])} tokens; nothing was written",
                        expected=f"a difference of at most {allowed:.2g}",
                        hint="please report this with the model's config.json; use the model with torch meanwhile",
                    )
                largest = max(largest, difference)
    return largest


def random_rows(config: ModelConfig) -> list[list[Example]]:
    """Return groups of random rows: one token alone, a few tokens, and many lengths that are padded together."""
    rng, first = generator(0, "export"), logit_offset(config)
    beyond_window = 3 * config.local_window if any(config.is_local(i) for i in range(config.layers)) else 0
    max_length = 10**6 if config.positions == "relative" else config.max_positions

    def row(length: int) -> Example:
        segments = (np.arange(length) > length // 2).astype(np.int64) if config.segments > 1 else None
        positions = np.arange(length)[first :: 1 + length // 8]
        targets = rng.integers(0, config.vocab_size, len(positions))
        labels = {"mlm.positions": positions, "mlm.targets": targets}
        return Example(rng.integers(0, config.vocab_size, length), segments, labels=labels)

    lengths = sorted({min(n, max_length) for n in (2, 5, 16, 41, max(100, beyond_window))})
    return [[row(1)], [row(min(7, max_length))], [row(length) for length in lengths]]


def outputs(engine: Engine, task: Task | None, rows: Sequence[Example], pad: int) -> Outputs:
    """Return all outputs of an engine for these rows, without padding."""
    values_by_name: Outputs = {"the last hidden state": engine.hidden(rows)}
    if engine.config.decoder_layers:
        return values_by_name | {"the decoder": _decoder_logits(engine, rows)}
    for head in engine.heads:
        if not HEADS[head].answers:
            continue
        values_by_name[f"the head {head}"] = engine.logits(head, rows)
        if HEADS[head].reads == "vocabulary":
            values_by_name[f"the head {head} at selected positions"] = engine.token_logprobs(head, rows)
    if task is not None and task.spec.output != "text":
        values = engine.forward_rows(task.forward, rows, pad)
        tokens = task.SPEC.output_per == "token"
        values_by_name[f"the task {task.name}"] = [v[: len(row)] if tokens else v for v, row in zip(values, rows)]
    return values_by_name


def _decoder_logits(engine: Engine, rows: Sequence[Example]) -> list[np.ndarray]:
    """Return the logits of a few decoding steps per row, (DECODER_STEPS, V), with fixed tokens."""
    start = engine.config.start_id
    settings = GenerationConfig(decoder_start_token_id=0 if start is None else start, pad_token_id=engine.config.pad_id)
    logits = []
    with engine.start_generation([row.input_ids.tolist() for row in rows], settings) as steps:
        for step in range(DECODER_STEPS):
            logits.append(steps.logits())
            steps.append_tokens(np.full(len(rows), (7 * step + 5) % engine.config.vocab_size, np.int64))
    return list(np.stack(logits, 1))


# ------------------------------------------------------------------------------------------------------------------ int8


def check_drift(model: Engine, graph: Engine, task: Task | None, tokenizer: Tokenizer) -> dict[str, Any]:
    """Measure how much int8 weights change the predictions for SENTENCES; raise UserError if it is too much.

    `drift` is the mean probability mass that moves from one class to others; for vectors, 1 − cosine; for numbers, the
    difference in standard deviations.
    """
    rows = sentence_rows(model.config, task, tokenizer)
    reference, exported = (outputs(engine, task, rows, tokenizer.pad) for engine in (model, graph))
    name = f"the task {task.name}" if task is not None else ""
    name = name if name in reference else list(reference)[min(1, len(reference) - 1)]
    kind = output_kind(name, task)
    drift = float(np.mean([output_drift(kind, a, b) for a, b in zip(reference[name], exported[name], strict=True)]))
    if kind == "number":
        drift /= float(np.std(np.concatenate([np.ravel(v) for v in reference[name]]))) + 1e-9
    limit = MAX_VECTOR_DRIFT if kind == "vector" else MAX_DRIFT
    if not drift <= limit:
        raise UserError(
            f"int8 weights change {name} by {drift:.3f} on {len(rows)} sentences; nothing was written",
            expected=f"at most {limit:g}",
            hint="remove --int8, or pass --data FILE to check the metric on your own data instead",
        )
    return {"output": name, "kind": kind, "sentences": len(rows), "drift": drift, "limit": limit}


def output_kind(name: str, task: Task | None) -> str:
    """Return the kind of an output: vector, choice (over the last axis), span (over the tokens), binary or number."""
    if name.endswith("hidden state"):
        return "vector"
    if task is None or task.spec.output == "text":
        return "binary" if name.endswith("rtd") else "choice"
    return "number" if task.spec.grouped else task.spec.output


def output_drift(kind: str, a: np.ndarray, b: np.ndarray) -> float:
    """
    >>> output_drift("choice", np.array([0.0, 0.0]), np.array([0.0, 50.0]))
    0.5
    >>> output_drift("vector", np.ones(2), 3 * np.ones(2)) < 1e-6
    True
    """
    if kind == "vector":
        a, b = (x.mean(0) if x.ndim > 1 else x for x in (a, b))
        return float(1 - a @ b / (np.linalg.norm(a) * np.linalg.norm(b) + 1e-12))
    if kind == "number":
        return float(np.abs(a - b).mean())
    if kind == "binary":
        return float(np.abs(1 / (1 + np.exp(-a)) - 1 / (1 + np.exp(-b))).mean())
    if kind == "span":  # (T, 2): start and end are two choices among the tokens
        a, b = a.T, b.T
    return float(np.abs(np.exp(log_softmax(a)) - np.exp(log_softmax(b))).sum(-1).mean() / 2)


def sentence_rows(config: ModelConfig, task: Task | None, tokenizer: Tokenizer) -> list[Example]:
    """Encode SENTENCES; for tasks with text pairs, each sentence together with the next."""
    pairs = task is not None and task.bound.text_pairs
    encoded = [tokenizer.encode(text)[: config.max_positions // 2 - 4] for text in SENTENCES]
    rows = []
    for n, ids in enumerate(encoded):
        pair = encoded[(n + 1) % len(encoded)] if pairs else None
        row, segments = tokenizer.build_inputs_with_special_tokens(ids, pair)
        positions = np.arange(1, len(row))
        labels = {"mlm.positions": positions, "mlm.targets": np.array(row)[positions]}
        rows.append(Example(np.array(row), np.array(segments) if config.segments > 1 else None, labels=labels))
    return rows


# ------------------------------------------------------------------------------------------------------ the user's data

Measure = Callable[[Any], dict[str, Any]]  # a Predictor → {"metric": name, name: value, "records": count}


def check_metric(measure: Measure, model: Any, graph: Any) -> dict[str, Any]:
    """Compare the metric of both on the user's data; raise UserError if the graph's is more than MAX_POINTS lower."""
    reference, exported = measure(model), measure(graph)
    name = reference["metric"]
    points = 100 * (reference[name] - exported[name])
    if not points <= MAX_POINTS:
        raise UserError(
            f"{name} on {reference['records']:,} records decreases from {reference[name]:.4f} to {exported[name]:.4f}, "
            f"by {points:.2f} points; nothing was written",
            expected=f"at most {MAX_POINTS} points",
            hint="remove --int8",
        )
    return {"metric": name, "records": reference["records"], "torch": reference[name], "onnx": exported[name]}


def masked_accuracy(lines: Sequence[str]) -> Measure:
    """Return the metric for a model without a task: the accuracy of predicting every seventh token of each line, masked (MLM)
    or from the tokens before it (causal)."""

    def measure(predictor: Any) -> dict[str, Any]:
        engine, tokenizer = predictor.engine, predictor.tokenizer
        causal = engine.config.causal
        rows = []
        for line in lines:
            ids = tokenizer.encode(line)[: engine.config.max_positions - 2]
            row = np.array(tokenizer.build_inputs_with_special_tokens(ids)[0])
            positions = np.flatnonzero(~tokenizer.special[row])[3::7]
            positions = positions[positions > 0]
            targets = row[positions]
            if not causal:
                row[positions] = tokenizer.mask
            if len(positions):
                rows.append(Example(row, labels={"mlm.positions": positions, "mlm.targets": targets}))
        if not rows:
            raise UserError("the file has no line with four tokens", expected="plain text, one sentence per line")
        predicted = np.concatenate([ids[:, 0] for ids, _ in engine.top_k("lm" if causal else "mlm", rows, 1)])
        correct = predicted == np.concatenate([row.labels["mlm.targets"] for row in rows])
        return {"metric": "accuracy", "accuracy": float(correct.mean()), "records": len(correct)}

    return measure
