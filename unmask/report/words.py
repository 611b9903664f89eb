"""Format scores, sizes and times as text, for reports, model cards and `unmask info`."""

from collections.abc import Sequence
from typing import Any

from unmask.metrics import finite, format_count, metric
from unmask.train.log import FIXED_TEXT, fixed_masking_values, loss_has_other_terms

Row = dict[str, Any]  # a line of the log, or a row of a table


def describe_model(s: Row) -> str:
    m = s["model"]
    parts = [s.get("init_from") or s.get("preset") or "", m.get("architecture") or ""]
    parts += [f"{m['layers']} layers × {m['hidden']}" if m.get("layers") and m.get("hidden") else ""]
    parts += [f"vocabulary {m['vocabulary']:,}" if m.get("vocabulary") else ""]
    parts += [f"{m['parameters']:,} parameters" if m.get("parameters") else ""]
    return ", ".join(p for p in parts if p)


def describe_steps(s: Row) -> str:
    done, total = s["steps"]["done"], s["steps"]["total"]
    return f"{done:,} of {total:,}" if total else f"{done:,}"


def hardware(s: Row) -> str:
    environment, threads = s["environment"], s["environment"].get("threads")
    if environment.get("cuda") and s["device"] != "cpu":
        return environment["cuda"]
    return ", ".join(filter(None, [environment.get("cpu"), f"{threads} threads" if threads else ""]))


def duration(seconds: float) -> str:
    """
    >>> duration(75), duration(330), duration(9000)
    ('75 s', '5.5 minutes', '2.5 hours')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


# ------------------------------------------------------------------------------------------- runs on plain text


def mixed_tracks(evals: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the evaluations of each replay corpus, by name.

    >>> mixed_tracks([{"step": 5, "loss": 3.0, "heldout[news]": {"loss": 2.0}}])
    {'news': [{'step': 5, 'loss': 2.0}]}
    """
    out: dict[str, list[Row]] = {}
    for e in evals:
        for key, values in e.items():
            if key.startswith("heldout[") and isinstance(values, dict) and finite(values.get("loss")):
                out.setdefault(key[8:-1], []).append({"step": e.get("step"), **values})
    return out


def accuracies(evals: Sequence[Row]) -> dict[str, str]:
    """Return the loss terms that have an accuracy, with their titles.

    >>> accuracies([{"mlm_accuracy": 0.2, "rtd_mlm_accuracy": 0.5, "loss": 3.0}])
    {'mlm': 'MLM', 'rtd_mlm': 'rtd_mlm'}
    """
    keys = {key for e in evals for key in e if key.endswith("_accuracy") and finite(e[key])}
    return {term: metric(term).title or term for term in sorted(key.removesuffix("_accuracy") for key in keys)}


def describe_scores(e: Row) -> str:
    """
    >>> describe_scores({"loss": 4.9, "mlm": 4.9, "perplexity": 134.3, "mlm_accuracy": 0.21})
    'loss 4.900, perplexity 134.3, MLM accuracy 21.0%'
    >>> describe_scores({"loss": 5.5, "mlm": 4.9, "nsp": 0.6, "perplexity": 134.3})
    'loss 5.500, MLM loss 4.900, perplexity 134.3'
    """
    parts = [f"loss {e['loss']:.3f}"]
    parts += [f"MLM loss {e['mlm']:.3f}"] if loss_has_other_terms(e) and finite(e["mlm"]) else []
    parts += [f"perplexity {e['perplexity']:,.1f}"] if finite(e.get("perplexity")) else []
    parts += [f"{title} accuracy {e[f'{term}_accuracy']:.1%}" for term, title in accuracies([e]).items()]
    return ", ".join(parts)


def describe_fixed(e: Row) -> str:
    """Describe the evaluation with fixed masking, which is the same for every run; "" if there is none."""
    fixed = fixed_masking_values(e)
    return f"{describe_scores(fixed)}; {FIXED_TEXT}" if fixed and finite(fixed.get("loss")) else ""


def describe_change(first: Row, last: Row) -> str:
    """
    >>> describe_change({"step": 0, "loss": 2.5}, {"step": 9, "loss": 2.75})
    'loss 2.750 (2.500 at step 0)'
    """
    return describe_scores(last) + (f" ({first['loss']:.3f} at step {first['step']:,})" if first != last else "")


def describe_duplicates(duplicates: dict[str, Any]) -> str:
    """
    >>> describe_duplicates({"exact": 3, "documents": 90, "near": {"share": 0.1, "documents": 50}})
    '3 of 90 documents, dropped; near duplicates: 10.0% of 50 sampled'
    """
    exact, documents, near = duplicates.get("exact"), duplicates.get("documents"), duplicates.get("near") or {}
    parts = []
    if finite(exact) and finite(documents):
        parts.append(f"{exact:,} of {documents:,} documents, dropped" if exact else "none")
    if finite(near.get("share")) and near.get("documents"):
        parts.append(f"near duplicates: {near['share']:.1%} of {near['documents']:,} sampled")
    if near.get("leaked"):
        parts.append(
            f"{near['leaked']:,} of {near['heldout']:,} validation documents are near duplicates of a training document"
        )
    return "; ".join(parts)


def counts(split: dict[str, Any]) -> str:
    """
    >>> counts({"tokens": 40, "documents": 1})
    '40 tokens, 1 document'
    """
    nouns = ("token", "document", "sentence", "word")
    return ", ".join(format_count(split[f"{noun}s"], noun) for noun in nouns if finite(split.get(f"{noun}s")))


def epochs(s: dict[str, Any]) -> str:
    tokens = s["data"]["train"].get("tokens")
    return f" ({s['tokens'] / tokens:.2f} epochs)" if tokens else ""


# ------------------------------------------------------------------------------------- runs on labeled records


def spaced(name: str) -> str:
    """Return the title of a metric, or its key with spaces."""
    return metric(name).title or name.replace("_", " ")


def interval(row: Row) -> str:
    """
    >>> interval({"low": 0.4, "high": 0.6})
    ' (95% CI: 0.400 to 0.600)'
    """
    return f" (95% CI: {row['low']:.3f} to {row['high']:.3f})" if finite(row["low"]) else ""


def describe_score(row: Row) -> str:
    """
    >>> describe_score({"score": "macro_f1", "value": 0.5, "low": 0.4, "high": 0.6, "records": 1200})
    'macro f1 0.5000 (95% CI: 0.400 to 0.600), 1,200 records'
    """
    return f"{spaced(row['score'])} {row['value']:.4f}{interval(row)}, {row['records']:,} records"


def describe_seeds(row: Row) -> str:
    """
    >>> describe_seeds({"score": "accuracy", "mean": 0.5, "sd": 0.01, "low": 0.475, "high": 0.525, "runs": 3})
    'accuracy 0.5000 ± 0.0100 (95% CI: 0.475 to 0.525)'
    """
    spread = f" ± {row['sd']:.4f}" if finite(row["sd"]) else ""
    return f"{spaced(row['score'])} {row['mean']:.4f}{spread}{interval(row)}"


def describe_baseline(row: Row, decides: str) -> str:
    """
    >>> describe_baseline({"macro_f1": 0.5, "lr": 1e-3}, "macro_f1")
    'macro f1 0.5000 (learning rate 0.001)'
    """
    if not finite(row.get(decides)):
        return ""
    rate = f" (learning rate {row['lr']:.2g})" if finite(row.get("lr")) else ""
    return f"{spaced(decides)} {row[decides]:.4f}{rate}"


def describe_best(s: Row) -> str:
    """Describe the evaluation by which the model was selected."""
    best, decides = s["best"] or {}, s["metric"]
    values = (
        {decides: best.get(decides)} if decides else {k: v for k, v in best.items() if k not in ("step", "elapsed")}
    )
    text = ", ".join(f"{spaced(key)} {value:.4f}" for key, value in values.items() if finite(value))
    return f"{text} (step {best['step']:,})" if text and finite(best.get("step")) else text


def notes_on(rows: Sequence[Row]) -> str:
    """Return the notes that explain the metrics of these rows."""
    return " ".join(dict.fromkeys(note for row in rows if (note := metric(row["score"]).note)))


def record_counts(records: Row) -> str:
    return ", ".join(f"{n:,} {name}" for name, n in records.items() if finite(n) and n)
