"""ELMo's encoder (Peters et al. 1802.05365 §3): two stacks of LSTMs, one reading forwards, one backwards, and their mix.

The stacks never meet, so a state of the forward one knows nothing of what follows, and the language model can be trained
on both. A task reads the mix: γ · Σ softmax(s)_j · h_j over the token vectors and every layer. Rows are padded on the
right; the backward stack begins at each row's real end. Not from the original: its clipping of cells and projections.
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

warnings.filterwarnings("ignore", message="LSTM with projections")  # oneDNN has none; the plain kernel is as fast here

NONE, BEGIN, END, SYMBOLS = 0, 257, 258, 259  # 1 to 256 are the bytes; BEGIN stands before a piece that begins a word
LONGEST = 50  # symbols of a piece, marks included; what is longer is cut
FILTERS = (32, 32, 64, 128, 256, 512, 1024)  # of width 1 to 7, at P = 512
CHARACTER = 16  # width of a symbol's vector


class Characters(nn.Module):
    """A token's vector from its bytes (Kim et al. 1508.06615): convolutions, the maximum over the piece, two highways.

    How each id of the vocabulary is spelled is part of the model, and saved with it.
    """

    spelling: Tensor

    def __init__(self, vocabulary: int, width: int):
        super().__init__()
        self.register_buffer("spelling", torch.full((vocabulary, LONGEST), -1, dtype=torch.int16))
        counts = [max(1, n * width // 512) for n in FILTERS]
        self.symbols = nn.Embedding(SYMBOLS, CHARACTER)
        self.filters = nn.ModuleList(nn.Conv1d(CHARACTER, n, w) for w, n in enumerate(counts, 1))
        self.highways = nn.ModuleList(Highway(sum(counts)) for _ in range(2))
        self.out = nn.Linear(sum(counts), width)

    @property
    def weight(self) -> Tensor:
        """The symbols' vectors: there is no matrix of tokens."""
        return self.symbols.weight

    def set_token_bytes(self, pieces: Sequence[bytes]) -> None:
        """`pieces`: the bytes of each id; a blank before them says that a word begins."""
        rows = torch.full(self.spelling.shape, NONE, dtype=torch.int16)
        for i, piece in enumerate(pieces):
            mark = [BEGIN] if piece.startswith(b" ") else []
            symbols = [*mark, *(byte + 1 for byte in piece.removeprefix(b" "))][: LONGEST - 1]
            rows[i, : len(symbols) + 1] = torch.tensor([*symbols, END], dtype=torch.int16)
        self.spelling.copy_(rows)

    def forward(self, ids: Tensor) -> Tensor:
        """ids (B, T) → (B, T, P); each different token of the batch is read once."""
        different, place = torch.unique(ids, return_inverse=True)
        spelled = self.spelling[different].long()  # (U, S)
        if bool((spelled < 0).any()):
            raise UserError(
                "this model reads characters, but does not know how its tokens are spelled",
                hint="model.encoder.embeddings.tokens.spell(spellings(tokenizer)), from unmask.text.token_bytes",
            )
        x = self.symbols(spelled).mT  # (U, 16, S)
        y = torch.cat([f(x).amax(-1) for f in self.filters], -1).relu()
        for highway in self.highways:
            y = highway(y)
        return F.embedding(place, self.out(y))


class Highway(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.change, self.carry = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        keep = (self.carry(x) + 1).sigmoid()  # at first most of x passes as it is
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
    """C cells, projected to the width of the stream."""

    def __init__(self, width: int, cells: int):
        super().__init__(width, cells, batch_first=True, proj_size=width if width < cells else 0)


class Layer(nn.Module):
    """One LSTM per direction; from the second layer on, what goes in is added to what comes out."""

    def __init__(self, config: ModelConfig, first: bool):
        super().__init__()
        self.residual = not first
        self.forwards = Direction(config.hidden // 2, config.intermediate)
        self.backwards = Direction(config.hidden // 2, config.intermediate)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, ahead: Tensor, behind: Tensor) -> tuple[Tensor, Tensor]:
        """Both (B, T, P), in the order that each direction reads."""
        a, b = self.drop(self.forwards(ahead)[0]), self.drop(self.backwards(behind)[0])
        return (a + ahead, b + behind) if self.residual else (a, b)


class ScalarMix(nn.Module):
    """γ · Σ softmax(s)_j · h_j. At first the mean of all layers.

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
        """First values that are not drawn: an even mix, and biases of 0, but 1 for the forget gate: a state lasts."""
        kind = name.rpartition(".")[2]
        if kind in ("weights", "scale") or kind.startswith("bias"):
            value.fill_(1.0 if kind == "scale" else 0.0)
            if kind.startswith("bias_ih"):
                value.view(4, -1)[1] = 1.0  # gates: input, forget, cell, output
            return True
        return False

    def init_std(self, owner: str, value: Tensor) -> float:
        """Of the first weights: matrices keep the size of what goes through them."""
        vectors = owner in ("encoder.embeddings.tokens", "encoder.embeddings.tokens.symbols")
        return self.config.initializer_range if vectors else float(value[0].numel() ** -0.5)

    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        segments: Tensor | None = None,
        states: list[Tensor] | None = None,
        at: Tensor | None = None,
        prefix: Tensor | None = None,
        documents: Tensor | None = None,
        top: bool = False,
    ) -> Tensor:
        """As `Encoder.forward`. With `top` the last layer instead of the mix: (…, D), the forward half first."""
        if prefix is not None or documents is not None:
            raise UserError(
                f"{'a prefix' if prefix is not None else 'packed documents'} in a model of LSTMs, which read every token",
                expected="whole rows; a preset of a Transformer hides tokens from each other",
            )
        x = self.embeddings(ids)
        states = [] if states is None else states
        states.append(torch.cat([x, x], -1))
        ahead, behind = x, backwards(x, mask)
        for layer in self.layers:
            ahead, behind = layer(ahead, behind)
            states.append(torch.cat([ahead, backwards(behind, mask)], -1))
        return select_positions(states[-1], at) if top else self.mix([select_positions(h, at) for h in states])


def backwards(x: Tensor, mask: Tensor | None = None) -> Tensor:
    """Each row's tokens (B, T, P) in reverse, its padding left at the end; twice is the same again.

    >>> backwards(torch.tensor([[[1.0], [2.0], [0.0]]]), torch.tensor([[True, True, False]])).flatten().tolist()
    [2.0, 1.0, 0.0]
    """
    if mask is None:
        return x.flip(1)
    place = torch.arange(x.shape[1], device=x.device)
    lengths = mask.sum(1, keepdim=True)
    order = torch.where(mask, lengths - 1 - place, place)  # (B, T)
    return x.gather(1, order[..., None].expand_as(x))
