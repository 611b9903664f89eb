"""What `unmask finetune --dry-run` found, as lines for a terminal."""

from typing import Any

from unmask.labels.findings import by_kind, from_rows


def lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    """(label, text) for a terminal."""
    out: list[tuple[str, str]] = []
    for name, part in found["tasks"].items():
        tokens, own = part["tokens"], "" if name == part["task"] else f"{name}: "
        columns = ", ".join(f"{role} ← {column}" for role, column in part["columns"].items())
        trained = "" if part["trained"] == part["parameters"] else f", {part['trained']:,} of them to train"
        longer = f"; {part['longer']:,} records are longer: {part['fate']}" if part["longer"] else ""
        out += [
            ("task", own + part["task"] + (f" ({columns})" if columns else "")),
            ("records", ", ".join(f"{n:,} {which}" for which, n in part["records"].items() if n)),
            ("labels", part["text"]),
            ("tokens", f"{tokens['median']:,} per row (median), {tokens['p95']:,} (95 %), {tokens['longest']:,} (longest); "
             f"a row has {tokens['row']:,}{longer}"),
            ("model", f"{found['start']} ({part['family']}), {part['parameters']:,} parameters{trained}"),
            *[("note", text) for text in part["notes"]],
            *[("warning", str(group)) for group in by_kind(from_rows(part["findings"]))],
        ]  # fmt: skip
    memory = found["memory_bytes"]
    parts = ", ".join(f"{name} {value / 1e6:,.0f}" for name, value in memory.items())
    seeds = f" for {found['seeds']} seeds" if found["seeds"] > 1 else ""
    less = f"; not counted: {', '.join(found['not_counted'])}" if found["not_counted"] else ""
    out += [
        ("steps", f"{found['steps']:,} of {found['batch']:,} rows = {found['epochs']:g} epochs, learning rate {found['lr']:.2g}, "
         f"{found['evaluations']} evaluations"),
        ("memory", f"up to about {sum(memory.values()) / 1e6:,.0f} MB ({parts}), beside about 400 MB of Python and torch"),
        ("time", f"about {found['minutes']:.1f} minutes on this machine{seeds} ({found['seconds_per_step']:.2f} s per step){less}; "
         "nothing was written"),
    ]  # fmt: skip
    return [(label, text) for label, text in out if text]
