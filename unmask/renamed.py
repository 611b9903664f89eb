"""Names that changed after version 0.1: recipe keys, their values, and flags.

Recipe files, run folders and model folders of version 0.1 still open: `upgrade` gives their values today's names. On the command line
and in Python an old name is an error that names the new one.
"""

from collections.abc import Callable
from typing import Any

# Recipe key of version 0.1 → today's.
KEYS = {
    "start": "init_from",
    "data.documents": "data.document_boundary",
    "data.column": "data.text_column",
    "data.heldout": "data.eval_fraction",
    "data.near_duplicate_sample": "data.minhash_sample",
    "data.mix": "data.replay",
    "tokenizer.kind": "tokenizer.type",
    "tokenizer.extend": "tokenizer.num_added_tokens",
    "mlm.rate": "mlm.mask_rate",
    "mlm.count": "mlm.sampling",
    "mlm.copies": "mlm.num_static_masks",
    "mlm.unit": "mlm.mask_unit",
    "bilm.share": "bilm.target_fraction",
    "cbow.share": "cbow.target_fraction",
    "hybrid.clm": "hybrid.clm_fraction",
    "rtd.weight": "rtd.discriminator_weight",
    "span.mean": "span.mean_span_length",
    "denoise.mean": "denoise.mean_span_length",
    "denoise.rate": "denoise.mask_rate",
    "distill.soft": "distill.kl_weight",
    "distill.cosine": "distill.cosine_weight",
    "distill.mlm": "distill.mlm_weight",
    "distill.init": "distill.student_init",
    "task.kind": "task.name",
    "task.dev_share": "task.dev_fraction",
    "task.seeds": "task.num_seeds",
    "task.length": "task.max_length",
    "task.long": "task.overflow",
    "task.hide": "task.token_mask_rate",
    "task.aux": "task.aux_mlm",
    "task.augment": "task.augment_mlm",
    "task.margin": "task.selection_margin",
    "task.classify.target": "task.classify.problem_type",
    "task.classify.balance": "task.classify.class_weight",
    "task.classify.separator": "task.classify.label_separator",
    "task.tag.faults": "task.tag.invalid_tags",
    "task.answer.longest": "task.answer.max_answer_length",
    "task.answer.stride": "task.answer.doc_stride",
    "task.answer.none": "task.answer.allow_no_answer",
    "task.generate.prefix": "task.generate.source_prefix",
    "task.generate.longest": "task.generate.max_new_tokens",
    "task.generate.beams": "task.generate.num_beams",
    "task.embed.directions": "task.embed.symmetric_loss",
    "task.embed.sizes": "task.embed.matryoshka_dims",
    "task.rank.negatives": "task.rank.num_negatives",
    "task.rank.pool": "task.rank.candidate_pool_size",
    "train.batch": "train.batch_size",
    "train.few_batch": "train.small_data_batch_size",
    "train.micro_batch": "train.micro_batch_size",
    "train.length": "train.max_length",
    "train.packing": "train.document_attention",
    "train.embeddings": "train.embedding_init",
    "train.layer_decay": "train.layerwise_lr_decay",
    "train.clip": "train.max_grad_norm",
    "train.decay": "train.wsd_decay_fraction",
    "train.evaluations": "train.num_evals",
    "train.eval_every": "train.eval_steps",
    "train.eval_rows": "train.max_eval_examples",
    "train.checkpoint_every": "train.save_steps",
    "train.checkpoint_minutes": "train.save_minutes",
    "train.keep": "train.save_total_limit",
    "train.log_every": "train.logging_steps",
    "train.activation_checkpointing": "train.gradient_checkpointing",
}


def _mlm_number(value: Any) -> Any:
    """
    >>> _mlm_number("mlm:0.1"), _mlm_number(""), _mlm_number("mlm")
    (0.1, 0.0, 0.5)
    """
    if not isinstance(value, str):
        return value
    return float(value.partition(":")[2] or 0.5) if value else 0.0


# Today's recipe key → value of version 0.1 → today's.
VALUES: dict[str, dict[Any, Any] | Callable[[Any], Any]] = {
    "data.document_boundary": {"block": "paragraph"},
    "mlm.sampling": {"drawn": "bernoulli"},
    "mlm.mask_unit": {"named": "phrase"},
    "distill.student_init": {"layers": "teacher_layers", "none": "random"},
    "task.overflow": {"windows": "window", "first": "truncate", "refuse": "error"},
    "task.aux_mlm": _mlm_number,
    "task.augment_mlm": _mlm_number,
    "task.classify.problem_type": {"one": "single_label", "several": "multi_label", "number": "regression"},
    "task.classify.class_weight": {"on": "balanced", "off": "none"},
    "task.tag.invalid_tags": {"refuse": "error"},
    "task.embed.symmetric_loss": {"one": False, "both": True},
    "task.rank.loss": {"list": "listwise", "point": "pointwise"},
    "train.document_attention": {"across": "full", "apart": "same_document"},
    "train.embedding_init": {"counted": "corpus_statistics"},
}

# Flag of version 0.1 → today's, by command ("" = any).
FLAGS = {
    "": {
        "--batch": "--batch-size",
        "--length": "--max-length",
        "--long": "--overflow",
        "--kind": "--tokenizer-type",
        "--special": "--special-token",
        "--heldout": "--eval-fraction",
        "--documents": "--document-boundary",
        "--mix": "--replay",
        "--aux": "--aux-mlm",
        "--augment": "--augment-mlm",
        "--seeds": "--num-seeds",
        "--top": "--top-k",
        "--joint": "--num-beams",
        "--grow": "--max-subwords",
        "--pairs": "--minimal-pairs",
        "--embed": "--embedder",
        "--rank": "--reranker",
        "--judgements": "--qrels",
        "--newest": "--last",
        "--grace": "--shutdown-timeout",
        "--slow": "--read-timeout",
        "--timeout": "--request-timeout",
        "--allow-host": "--allowed-host",
        "--cors": "--cors-origin",
        "--to": "--format",
        "--bad": "--bad-rows",
    },
    "prepare": {"--pairs": "--index-pairs", "--column": "--text-column"},
    "pretrain": {"--column": "--text-column"},
    "tokenizer train": {"--column": "--text-column"},
    "score": {"--column": "--text-column"},
    "embed": {"--column": "--text-column"},
    "search": {"--run": "--save-run"},
    "tune": {"--search": "--params"},
    "evaluate": {"--rows": "--max-rows"},
}
COMMANDS = {"next": "next-sentence"}


def upgrade(values: dict[str, Any], path: str = "") -> dict[str, Any]:
    """Rename the keys and values of a version 0.1 recipe to today's names.

    >>> upgrade({"start": "a", "train": {"batch": 8}, "tasks": {"x": {"kind": "classify", "long": "first"}}})
    {'init_from': 'a', 'train': {'batch_size': 8}, 'tasks': {'x': {'name': 'classify', 'overflow': 'truncate'}}}
    """
    upgraded: dict[str, Any] = {}
    for key, value in values.items():
        new = KEYS.get(f"{path}{key}", f"{path}{key}")
        if key == "tasks" and not path and isinstance(value, dict):
            value = {name: upgrade(task, "task.") if isinstance(task, dict) else task for name, task in value.items()}
        elif isinstance(value, dict) and key != "model":
            value = upgrade(value, f"{path}{key}.")
        upgraded[new.removeprefix(path)] = _upgraded_value(new, value)
    return upgraded


def _upgraded_value(path: str, value: Any) -> Any:
    table = VALUES.get(path, {})
    try:
        return table(value) if callable(table) else table.get(value, value)
    except (TypeError, ValueError):  # a value that is not hashable or not a number: the schema rejects it
        return value


def upgrade_task_state(state: dict[str, Any]) -> dict[str, Any]:
    """Rename the values of a version 0.1 task state (saved with the weights) to today's.

    >>> upgrade_task_state({"target": "several", "length": 128})
    {'target': 'multi_label', 'length': 128}
    """
    if "target" not in state:
        return state
    return state | {"target": _upgraded_value("task.classify.problem_type", state["target"])}


def hashed(section: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return settings under the names and values of version 0.1, which are hashed into cache keys.

    >>> hashed("data", {"language": "en", "eval_fraction": 0.02})
    {'language': 'en', 'heldout': 0.02}
    """
    old_keys = {new: old for old, new in KEYS.items()}
    return {
        old_keys.get(f"{section}.{key}", key).rpartition(".")[2]: _old_value(f"{section}.{key}", value)
        for key, value in values.items()
    }


def _old_value(path: str, value: Any) -> Any:
    table = VALUES.get(path)
    return next((old for old, new in table.items() if new == value), value) if isinstance(table, dict) else value
