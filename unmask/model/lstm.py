"""Encoder of ELMo (Peters et al. 1802.05365 §3): a forward and a backward stack of LSTMs, and a learned mix of their layers.

The stacks are independent, so a forward state does not depend on later tokens, and both can be trained as language models.
Tasks read the mix: γ · Σ softmax(s)_j · h_j over the token vectors and all layers. Rows are padded on the right; the
backward stack starts at the last token of each row. Unlike the original, cells and projections are not clipped.
Shapes: B rows, T tokens, D hidden, P = D / 2 the width of one direction, C cells.
"""

import warnings
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.errors import UserError
from unmask.model.config import ModelConfig
from unmask.model.layers import select_positions

warnings.filterwarnings(
    "ignore", message="LSTM with projections"
)  # oneDNN does not support them; the default kernel is as fast

PAD, WORD_START, END, NUM_SYMBOLS = (
    0,
    257,
    258,
    259,
)  # 1 to 256 are bytes; WORD_START precedes the first subword of a word
MAX_TOKEN_SYMBOLS = 50  # including WORD_START and END; longer tokens are truncated
NUM_FILTERS = (32, 32, 64, 128, 256, 512, 1024)  # of width 1 to 7, for P = 512
SYMBOL_WIDTH = 16


class Characters(nn.Module):
    """Token vectors from bytes (Kim et al. 1508.06615): convolutions, the maximum over the token, two highway layers.

    `spelling` holds the symbols of each token of the vocabulary and is saved with the model; -1 = not set.
    """

    spelling: Tensor

    def __init__(self, vocab_size: int, width: int):
        super().__init__()
        self.register_buffer("spelling", torch.full((vocab_size, MAX_TOKEN_SYMBOLS), -1, dtype=torch.int16))
        counts = [max(1, n * width // 512) for n in NUM_FILTERS]
        self.symbols = nn.Embedding(NUM_SYMBOLS, SYMBOL_WIDTH)
        self.filters = nn.ModuleList(nn.Conv1d(SYMBOL_WIDTH, n, w) for w, n in enumerate(counts, 1))
        self.highways = nn.ModuleList(Highway(sum(counts)) for _ in range(2))
        self.out = nn.Linear(sum(counts), width)

    @property
    def weight(self) -> Tensor:
        """Return the symbol embedding; there is no token embedding."""
        return self.symbols.weight

    def set_token_bytes(self, token_bytes: Sequence[bytes]) -> None:
        """Store the bytes of each token id; a leading space marks the start of a word."""
        rows = torch.full(self.spelling.shape, PAD, dtype=torch.int16)
        for i, token in enumerate(token_bytes):
            start = [WORD_START] if token.startswith(b" ") else []
            symbols = [*start, *(byte + 1 for byte in token.removeprefix(b" "))][: MAX_TOKEN_SYMBOLS - 1]
            rows[i, : len(symbols) + 1] = torch.tensor([*symbols, END], dtype=torch.int16)
        self.spelling.copy_(rows)

    def forward(self, ids: Tensor) -> Tensor:
        """ids (B, T) → (B, T, P). Each distinct token of the batch is computed once."""
        distinct, inverse = torch.unique(ids, return_inverse=True)
        symbols = self.spelling[distinct].long()  # (U, S)
        if bool((symbols < 0).any()):
            raise UserError(
                "this model reads characters, but it was not given how its tokens are spelled",
                hint="from unmask.text.token_bytes import token_bytes; model.set_token_bytes(token_bytes(tokenizer))",
            )
        x = self.symbols(symbols).mT  # (U, 16, S)
        y = torch.cat([f(x).amax(-1) for f in self.filters], -1).relu()
        for highway in self.highways:
            y = highway(y)
        return F.embedding(inverse, self.out(y))


class Highway(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.change, self.carry = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        keep = (self.carry(x) + 1).sigmoid()  # the +1 carries most of x through at the start of training
        return keep * x + (1 - keep) * self.change(x).relu()


class Embeddings(nn.Module):
    def __init__(self, config: ModelConfig):
        super().__init__()
        width = config.hidden // 2
        self.tokens: nn.Module = (
            Characters(config.vocab_size, width)
            if config.characters
            else nn.Embedding(config.vocab_size, width, padding_idx=config.pad_id)
        )
        self.drop = nn.Dropout(config.dropout)

    def forward(self, ids: Tensor) -> Tensor:
        return self.drop(self.tokens(ids))


class Direction(nn.LSTM):
    """An LSTM with C cells, projected to width P."""

    def __init__(self, width: int, cells: int):
        super().__init__(width, cells, batch_first=True, proj_size=width if width < cells else 0)


class Layer(nn.Module):
    """One LSTM per direction, with a residual connection from the second layer on."""

    def __init__(self, config: ModelConfig, first: bool):
        super().__init__()
        self.residual = not first
        self.forwards = Direction(config.hidden // 2, config.intermediate)
        self.backwards = Direction(config.hidden // 2, config.intermediate)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, x_reversed: Tensor) -> tuple[Tensor, Tensor]:
        """Both (B, T, P), each in the order in which its LSTM reads."""
        a, b = self.drop(self.forwards(x)[0]), self.drop(self.backwards(x_reversed)[0])
        return (a + x, b + x_reversed) if self.residual else (a, b)


class ScalarMix(nn.Module):
    """γ · Σ softmax(s)_j · h_j, initially the mean of all layers.

    >>> ScalarMix(2)([torch.zeros(1, 3), torch.ones(1, 3)])
    tensor([[0.5000, 0.5000, 0.5000]], grad_fn=<MulBackward0>)
    """

    def __init__(self, states: int):
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(states))  # s
        self.scale = nn.Parameter(torch.ones(1))  # γ

    def forward(self, states: Sequence[Tensor]) -> Tensor:
        return sum(w * h for w, h in zip(self.weights.softmax(0), states, strict=True)) * self.scale  # type: ignore[return-value]


class LSTMEncoder(nn.Module):
    """
    >>> from unmask.model.config import preset
    >>> LSTMEncoder(preset("elmo-mini", vocab_size=50))(torch.tensor([[2, 7, 3]])).shape
    torch.Size([1, 3, 256])
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(Layer(config, first=i == 0) for i in range(config.layers))
        self.mix = ScalarMix(config.layers + 1)

    def init_parameter(self, name: str, value: Tensor) -> bool:
        """Set constant initial values: a uniform mix and zero biases, but 1 for the forget gate. Return False for others."""
        kind = name.rpartition(".")[2]
        if kind in ("weights", "scale") or kind.startswith("bias"):
            value.fill_(1.0 if kind == "scale" else 0.0)
            if kind.startswith("bias_ih"):
                value.view(4, -1)[1] = 1.0  # gates: input, forget, cell, output
            return True
        return False

    def init_std(self, owner: str, value: Tensor) -> float:
        """Return the standard deviation of the initial weights; 1 / sqrt(inputs) for matrices."""
        is_embedding = owner in ("encoder.embeddings.tokens", "encoder.embeddings.tokens.symbols")
        return self.config.initializer_range if is_embedding else float(value[0].numel() ** -0.5)

    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        segments: Tensor | None = None,
        states: list[Tensor] | None = None,
        positions: Tensor | None = None,
        prefix: Tensor | None = None,
        documents: Tensor | None = None,
        top: bool = False,
    ) -> Tensor:
        """As `Encoder.forward`. `top=True` returns the last layer instead of the mix: (…, D), the forward half first."""
        if prefix is not None or documents is not None:
            raise UserError(
                f"a model of LSTMs cannot mask {'a prefix' if prefix is not None else 'packed documents'}",
                hint="use the preset of a Transformer, which has attention masks",
            )
        x = self.embeddings(ids)
        states = [] if states is None else states
        states.append(torch.cat([x, x], -1))
        x_reversed = reverse_rows(x, mask)
        for layer in self.layers:
            x, x_reversed = layer(x, x_reversed)
            states.append(torch.cat([x, reverse_rows(x_reversed, mask)], -1))
        if top:
            return select_positions(states[-1], positions)
        return self.mix([select_positions(state, positions) for state in states])


def reverse_rows(x: Tensor, mask: Tensor | None = None) -> Tensor:
    """Reverse the tokens of each row (B, T, P) and leave the padding at the end. The function is its own inverse.

    >>> reverse_rows(torch.tensor([[[1.0], [2.0], [0.0]]]), torch.tensor([[True, True, False]])).flatten().tolist()
    [2.0, 1.0, 0.0]
    """
    if mask is None:
        return x.flip(1)
    index = torch.arange(x.shape[1], device=x.device)
    lengths = mask.sum(1, keepdim=True)
    order = torch.where(mask, lengths - 1 - index, index)  # (B, T)
    return x.gather(1, order[..., None].expand_as(x))
