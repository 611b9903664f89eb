"""Rebuild a model with different heads, config or vocabulary, and copy all compatible weights."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from unmask.errors import UserError
from unmask.model.config import ModelConfig, change
from unmask.model.model import Model, with_dependencies


@torch.no_grad()
def rebuild_with(
    model: Model,
    config: ModelConfig,
    heads: Iterable[str],
    new_tokens: Mapping[int, Sequence[int]] | None = None,
    seed: int = 0,
) -> tuple[Model, list[str]]:
    """Return the model with `config` and `heads`, and the names of head parameters that were randomly initialized.

    `new_tokens`: new token id → the ids of its subwords. The new rows of all parameters with a row per token (embedding,
    decoder, bias) are the means of the rows of these subwords.
    """
    vocab_size = max([config.vocab_size, *(i + 1 for i in new_tokens or ())])
    config = change(config, vocab_size=vocab_size)
    if not new_tokens and config == model.config and with_dependencies(heads) == list(model.heads):
        return model, []
    new = Model(config, heads)
    token_dims = _token_dimensions(config, heads) if new_tokens else {}
    old_state = model.state_dict()
    state: dict[str, Tensor] = {}
    missing: list[str] = []
    for name, empty in new.state_dict().items():
        value = old_state.get(name)
        if value is not None and name in token_dims:
            value = _resize_rows(value, token_dims[name], vocab_size, new_tokens or {})
        if value is not None and value.shape == empty.shape:
            state[name] = value
        elif name.startswith("heads."):
            missing.append(name)
        else:
            problem = "is missing" if value is None else f"has shape {tuple(value.shape)}"
            raise UserError(
                f"{name} of the model {problem}",
                expected=f"shape {tuple(empty.shape)}, according to `model:` in the recipe",
            )
    new.generation = model.generation
    new.load_state_dict(state, strict=False)
    new.init(seed, only=missing)
    return new.train(model.training), missing


def _token_dimensions(config: ModelConfig, heads: Iterable[str]) -> dict[str, int]:
    """Map the parameters with an entry per token to this dimension: the one that grows with the vocabulary."""
    with torch.device("meta"):
        current, larger = (
            Model(c, heads).state_dict() for c in (config, change(config, vocab_size=config.vocab_size + 1))
        )
    dims = {}
    for name, value in current.items():
        changed = [dim for dim, (a, b) in enumerate(zip(value.shape, larger[name].shape)) if a != b]
        if changed:
            dims[name] = changed[0]
    return dims


def _resize_rows(value: Tensor, dim: int, size: int, new_tokens: Mapping[int, Sequence[int]]) -> Tensor:
    """Extend dimension `dim` to `size` and fill the new entries with the means of their subwords."""
    rows = value.movedim(dim, 0)
    resized = torch.zeros(size, *rows.shape[1:], dtype=value.dtype)
    resized[: len(rows)] = rows
    # Integers are the spellings of tokens (lstm.py), which the caller sets again.
    for i, subwords in new_tokens.items() if value.is_floating_point() else ():
        resized[i] = rows[torch.tensor(list(subwords))].mean(0)
    return resized.movedim(0, dim).contiguous()
