"""A model made anew from one that is there: other heads, other settings, more words. Weights that fit are taken over."""

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
    words: Mapping[int, Sequence[int]] | None = None,
    seed: int = 0,
) -> tuple[Model, list[str]]:
    """The model with `config` and `heads`, and the names of the head parameters that had to be drawn at random.

    `words`: new token id → the ids of its pieces. A new row of anything that has one per token (embedding, decoder,
    bias) is the mean of the rows of its pieces, so that the word begins as what its pieces mean together.
    """
    size = max([config.vocab_size, *(i + 1 for i in words or ())])
    config = change(config, vocab_size=size)
    if not words and config == model.config and with_dependencies(heads) == list(model.heads):
        return model, []
    new = Model(config, heads)
    per_token = _per_token(config, heads) if words else {}
    have = model.state_dict()
    state: dict[str, Tensor] = {}
    missing: list[str] = []
    for name, empty in new.state_dict().items():
        value = have.get(name)
        if value is not None and name in per_token:
            value = _resize_rows(value, per_token[name], size, words or {})
        if value is not None and value.shape == empty.shape:
            state[name] = value
        elif name.startswith("heads."):
            missing.append(name)
        else:
            got = "is not there" if value is None else f"has shape {tuple(value.shape)}"
            raise UserError(f"{name} of the model {got}", expected=f"shape {tuple(empty.shape)}, as `model:` asks for")
    new.generation = model.generation
    new.load_state_dict(state, strict=False)
    new.init(seed, only=missing)
    return new.train(model.training), missing


def _per_token(config: ModelConfig, heads: Iterable[str]) -> dict[str, int]:
    """Parameters that have a row per token → the dimension of these rows: the one that a larger vocabulary changes."""
    with torch.device("meta"):
        this, larger = (
            Model(c, heads).state_dict() for c in (config, change(config, vocab_size=config.vocab_size + 1))
        )
    out = {}
    for name, value in this.items():
        changed = [d for d, (a, b) in enumerate(zip(value.shape, larger[name].shape)) if a != b]
        if changed:
            out[name] = changed[0]
    return out


def _resize_rows(value: Tensor, at: int, size: int, words: Mapping[int, Sequence[int]]) -> Tensor:
    """`size` rows in dimension `at`, the new ones from their pieces."""
    rows = value.movedim(at, 0)
    out = torch.zeros(size, *rows.shape[1:], dtype=value.dtype)
    out[: len(rows)] = rows
    for i, pieces in words.items() if value.is_floating_point() else ():  # else how tokens are spelled: told anew
        out[i] = rows[torch.tensor(list(pieces))].mean(0)
    return out.movedim(0, at).contiguous()
