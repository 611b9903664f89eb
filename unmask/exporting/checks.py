"""The gate of an export: what was written is loaded again and compared with the model; what differs is refused.

| precision | compared                                                                  | refused                                     |
|-----------|---------------------------------------------------------------------------|---------------------------------------------|
| fp32      | every output, on rows of many lengths, padded and alone                   | a difference above 1e-4 (of outputs beyond ±10: 1e-5 of the largest) |
| int8      | without a file: answers to a few plain sentences (`drift`)                | 5 points of probability moved; of vectors, a cosine below 0.99 |
| both      | with a file: the model's metric on it                                     | 0.5 points less                             |
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from unmask.batch import Example
from unmask.errors import UserError
from unmask.inference.engine import Engine, place_before
from unmask.model.config import ModelConfig
from unmask.model.generation import Generation
from unmask.model.head_spec import HEADS
from unmask.numeric import log_softmax
from unmask.seeds import generator
from unmask.tasks.task import Task
from unmask.text.tokenizer import Tokenizer

DIFFERENCE = 1e-4
DRIFT, VECTORS = 0.05, 0.01
POINTS = 0.5
STEPS = 3  # tokens that a decoder writes
PROBES = (
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
)  # plain sentences of several kinds, for a model whose own texts are not given

Outputs = dict[str, list[np.ndarray]]  # name → values per row


def check_equal(model: Engine, graph: Engine, task: Task | None, pad: int) -> float:
    """The largest difference of any output; UserError when one is too large."""
    worst = 0.0
    for rows in probe_rows(model.config):
        ours, theirs = outputs(model, task, rows, pad), outputs(graph, task, rows, pad)
        for name, values in ours.items():
            allowed = DIFFERENCE * max(1.0, max(float(np.abs(v).max(initial=0.0)) for v in values) / 10)
            for n, (a, b) in enumerate(zip(values, theirs[name], strict=True)):
                far = float(np.abs(a - b).max(initial=0.0)) if a.shape == b.shape else np.inf
                if not far <= allowed:  # NaN is not
                    raise UserError(
                        f"the exported graph is not the model: {name} differs by {far:.2g} on a row of "
                        f"{len(rows[n])} tokens; nothing was written",
                        expected=f"a difference of at most {allowed:.2g}",
                        hint="report it with the model's config.json, and use the folder as it is: it needs torch",
                    )
                worst = max(worst, far)
    return worst


def probe_rows(config: ModelConfig) -> list[list[Example]]:
    """Groups of rows, drawn by address: one token alone, a few, and many lengths that are padded together."""
    draw, first = generator(0, "export"), place_before(config)
    beyond = 3 * config.local_window if any(config.is_local(i) for i in range(config.layers)) else 0
    most = 10**6 if config.positions == "relative" else config.max_positions

    def row(length: int) -> Example:
        segments = (np.arange(length) > length // 2).astype(np.int64) if config.segments > 1 else None
        places = np.arange(length)[first :: 1 + length // 8]
        targets = draw.integers(0, config.vocab_size, len(places))
        labels = {"mlm.positions": places, "mlm.targets": targets}
        return Example(draw.integers(0, config.vocab_size, length), segments, labels=labels)

    lengths = sorted({min(n, most) for n in (2, 5, 16, 41, max(100, beyond))})
    return [[row(1)], [row(min(7, most))], [row(length) for length in lengths]]


def outputs(engine: Engine, task: Task | None, rows: Sequence[Example], pad: int) -> Outputs:
    """Everything that an engine can be asked for these rows, without what it says of padding."""
    found: Outputs = {"the last hidden state": engine.hidden(rows)}
    if engine.config.decoder_layers:
        return found | {"what the decoder writes": _written(engine, rows)}
    for head in engine.heads:
        if not HEADS[head].answers:
            continue
        found[f"the head {head}"] = engine.logits(head, rows)
        if HEADS[head].reads == "vocabulary":
            found[f"the head {head} at chosen places"] = engine.likelihoods(head, rows)
    if task is not None and task.spec.output != "text":
        values = engine.run(task.forward, rows, pad)
        tokens = task.SPEC.reads == "tokens"
        found[f"the task {task.name}"] = [v[: len(row)] if tokens else v for v, row in zip(values, rows)]
    return found


def _written(engine: Engine, rows: Sequence[Example]) -> list[np.ndarray]:
    """Per row the logits of a few steps (STEPS, V), in which the tokens are given."""
    start = engine.config.start_id
    how = Generation(decoder_start_token_id=0 if start is None else start, pad_token_id=engine.config.pad_id)
    found = []
    with engine.begin([row.ids.tolist() for row in rows], how) as steps:
        for step in range(STEPS):
            found.append(steps.logits())
            steps.grow(np.full(len(rows), (7 * step + 5) % engine.config.vocab_size, np.int64))
    return list(np.stack(found, 1))


# ------------------------------------------------------------------------------------------------ a graph of fewer bits


def check_drift(model: Engine, graph: Engine, task: Task | None, tokenizer: Tokenizer) -> dict[str, Any]:
    """How far a graph of 8-bit weights answers otherwise, on plain sentences; UserError when it is too far.

    `drift`: the mean share of probability that moves from one answer to others; of vectors, 1 − cosine; of plain numbers, the
    difference in standard deviations.
    """
    rows = sentence_rows(model.config, task, tokenizer)
    ours, theirs = (outputs(engine, task, rows, tokenizer.pad) for engine in (model, graph))
    own = f"the task {task.name}" if task is not None else ""
    name = own if own in ours else list(ours)[min(1, len(ours) - 1)]
    kind = kind_of(name, task)
    drift = float(np.mean([moved(kind, a, b) for a, b in zip(ours[name], theirs[name], strict=True)]))
    if kind == "number":
        drift /= float(np.std(np.concatenate([np.ravel(v) for v in ours[name]]))) + 1e-9
    limit = VECTORS if kind == "vector" else DRIFT
    if not drift <= limit:
        raise UserError(
            f"8-bit weights change {name} by {drift:.3f} on {len(rows)} plain sentences; nothing was written",
            expected=f"at most {limit:g}",
            hint="leave --int8 out; or give --data FILE, so that the metric on your own file decides",
        )
    return {"output": name, "kind": kind, "sentences": len(rows), "drift": drift, "limit": limit}


def kind_of(name: str, task: Task | None) -> str:
    """What an output is: vector, choice (of the last axis), span (of the tokens), binary (yes or no) or number."""
    if name.endswith("hidden state"):
        return "vector"
    if task is None or task.spec.output == "text":
        return "binary" if name.endswith("rtd") else "choice"
    return "number" if task.spec.grouped else task.spec.output


def moved(kind: str, a: np.ndarray, b: np.ndarray) -> float:
    """
    >>> moved("choice", np.array([0.0, 0.0]), np.array([0.0, 50.0])), moved("vector", np.ones(2), 3 * np.ones(2)) < 1e-6
    (0.5, True)
    """
    if kind == "vector":
        a, b = (x.mean(0) if x.ndim > 1 else x for x in (a, b))
        return float(1 - a @ b / (np.linalg.norm(a) * np.linalg.norm(b) + 1e-12))
    if kind == "number":
        return float(np.abs(a - b).mean())
    if kind == "binary":
        return float(np.abs(1 / (1 + np.exp(-a)) - 1 / (1 + np.exp(-b))).mean())
    if kind == "span":  # (T, 2): a choice among the tokens, twice
        a, b = a.T, b.T
    return float(np.abs(np.exp(log_softmax(a)) - np.exp(log_softmax(b))).sum(-1).mean() / 2)


def sentence_rows(config: ModelConfig, task: Task | None, tokenizer: Tokenizer) -> list[Example]:
    """PROBES as rows; of tasks that read two texts, each with the next one."""
    pairs = task is not None and task.bound.pairs
    ids = [tokenizer.encode(text)[: config.max_positions // 2 - 4] for text in PROBES]
    rows = []
    for n, own in enumerate(ids):
        row, segments = tokenizer.build_inputs_with_special_tokens(own, ids[(n + 1) % len(ids)] if pairs else None)
        places = np.arange(1, len(row))
        labels = {"mlm.positions": places, "mlm.targets": np.array(row)[places]}
        rows.append(Example(np.array(row), np.array(segments) if config.segments > 1 else None, labels=labels))
    return rows


# ----------------------------------------------------------------------------------------------------- the user's file

Measure = Callable[[Any], dict[str, Any]]  # a Predictor → {"metric": name, name: value, "records": count}


def check_metric(measure: Measure, model: Any, graph: Any) -> dict[str, Any]:
    """The metric of both on the user's file; UserError when the graph's is more than POINTS lower."""
    ours, theirs = measure(model), measure(graph)
    name = ours["metric"]
    points = 100 * (ours[name] - theirs[name])
    if not points <= POINTS:
        raise UserError(
            f"{name} on {ours['records']:,} records falls from {ours[name]:.4f} to {theirs[name]:.4f}, by {points:.2f} points; "
            "nothing was written",
            expected=f"at most {POINTS} points",
            hint="leave --int8 out",
        )
    return {"metric": name, "records": ours["records"], "torch": ours[name], "onnx": theirs[name]}


def masked_accuracy(lines: Sequence[str]) -> Measure:
    """For a model without a task: the share of tokens, every seventh of each line, that it finds again under a mask, or after those before."""

    def measure(predictor: Any) -> dict[str, Any]:
        engine, t = predictor.engine, predictor.tokenizer
        left = engine.config.causal
        rows = []
        for ids in (t.encode(line)[: engine.config.max_positions - 2] for line in lines):
            row = np.array(t.build_inputs_with_special_tokens(ids)[0])
            places = np.flatnonzero(~t.special[row])[3::7]
            places = places[places > 0]
            targets = row[places]
            if not left:
                row[places] = t.mask
            if len(places):
                rows.append(Example(row, labels={"mlm.positions": places, "mlm.targets": targets}))
        if not rows:
            raise UserError("the file has no line of four words", expected="plain text, a line per sentence")
        found = engine.top("lm" if left else "mlm", rows, 1)
        right = np.concatenate(
            [ids[:, 0] == row.labels["mlm.targets"] for (ids, _), row in zip(found, rows, strict=True)]
        )
        return {"metric": "accuracy", "accuracy": float(right.mean()), "records": len(right)}

    return measure
