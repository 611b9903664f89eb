"""Muon and AdamW, chosen per parameter.

Muon (K. Jordan et al., 2024) replaces a matrix's momentum by its nearest semi-orthogonal matrix, computed with five
Newton–Schulz iterations. This implementation runs in fp32 and processes matrices of equal shape in one batch. torch's Muon works
in bfloat16, one matrix at a time: it is four times slower on a CPU, and a 1e-7 change of a gradient moves its update by 1%, so
runs with different process counts would not match. A parameter that stacks several matrices (fused QKV, the two halves of a
gated layer) is split into them. AdamW updates embeddings, heads, norms and biases.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from unmask.errors import UserError
from unmask.model.model import Model
from unmask.recipe import TrainRecipe
from unmask.registry import OPTIMIZERS

NS_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
NS_STEPS = 5


def orthogonalize(g: Tensor) -> Tensor:
    """Move the singular values of each matrix of a batch (N, R, C) close to 1 and keep its singular vectors."""
    a, b, c = NS_COEFFICIENTS
    wide = g.shape[-2] <= g.shape[-1]
    x = g if wide else g.mT
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-7)
    for _ in range(NS_STEPS):
        s = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(s, s, s, beta=b, alpha=c), x, beta=a)
    return x if wide else x.mT


class Muon(torch.optim.Optimizer):
    """`params`: (parameter, parts[, lr_scale]). `parts` is the number of matrices stacked in the parameter's rows."""

    def __init__(self, params: Iterable[tuple[Any, ...]], lr: float, momentum: float = 0.95, weight_decay=0.0):
        groups: dict[tuple[int, int, float], list[nn.Parameter]] = {}
        self.parts: dict[nn.Parameter, int] = {}
        for p, parts, *lr_scale in params:
            assert p.ndim == 2 and p.shape[0] % parts == 0
            groups.setdefault((p.shape[0] // parts, p.shape[1], lr_scale[0] if lr_scale else 1.0), []).append(p)
            self.parts[p] = parts
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__([{"params": ps, "lr": lr * scale} for (_, _, scale), ps in groups.items()], defaults)

    @torch.no_grad()
    def step(self, closure=None):  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            params = group["params"]
            rows, columns = params[0].shape[0] // self.parts[params[0]], params[0].shape[1]
            stacked = []
            for p in params:
                state = self.state[p]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(p, dtype=torch.float32)
                buffer = state["momentum"].lerp_(p.grad.float(), 1 - group["momentum"])
                nesterov = p.grad.float().lerp(buffer, group["momentum"])
                stacked.append(nesterov.view(self.parts[p], rows, columns))
            update = orthogonalize(torch.cat(stacked))
            scale = max(1.0, rows / columns) ** 0.5
            for p, u in zip(params, update.split([self.parts[p] for p in params])):
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(u.reshape(p.shape), alpha=-group["lr"] * scale)


@dataclass(frozen=True)
class TrainedParameter:
    """A parameter that is updated."""

    name: str  # in the model
    parameter: nn.Parameter
    lr_scale: float  # factor of the learning rate (layer-wise decay)
    parts: int  # number of layer matrices stacked in it; 0 for embeddings, heads, norms and biases


def adamw(trained: Sequence[TrainedParameter], settings: TrainRecipe, lr: float = 1e-3) -> list[torch.optim.Optimizer]:
    lr = settings.lr or lr
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for t in sorted(trained, key=lambda t: t.parameter.ndim < 2):
        groups.setdefault((t.lr_scale, t.parameter.ndim >= 2), []).append(t.parameter)
    optimizer = torch.optim.AdamW(
        [
            # no weight decay for norms and biases
            {"params": ps, "lr": lr * scale, "weight_decay": settings.weight_decay if is_matrix else 0.0}
            for (scale, is_matrix), ps in groups.items()
        ],
        fused=all(t.parameter.device.type in ("cpu", "cuda") for t in trained),
        lr=lr,
        betas=settings.betas,
        eps=settings.eps,
    )
    return [optimizer]


def muon(trained: Sequence[TrainedParameter], settings: TrainRecipe) -> list[torch.optim.Optimizer]:
    """Return Muon for the matrices of the layers, if there are any, and AdamW for all other parameters."""
    optimizers = adamw([t for t in trained if not t.parts], settings, lr=5e-3)
    matrices = [(t.parameter, t.parts, t.lr_scale) for t in trained if t.parts]
    if matrices:
        optimizers.append(Muon(matrices, lr=settings.muon_lr, weight_decay=settings.weight_decay))
    return optimizers


class Optimizers:
    """The optimizers of a run as one: a learning-rate factor, a step, and a state that is a flat dict of tensors."""

    def __init__(self, model: Model, settings: TrainRecipe, trained: Mapping[str, nn.Parameter]):
        """`trained`: the updated parameters by their names in the model."""
        self.names: dict[Tensor, str] = {p: n for n, p in trained.items()}
        parts = matrix_parts(model)
        self.all: list[torch.optim.Optimizer] = OPTIMIZERS[settings.optimizer](
            [
                TrainedParameter(n, p, (settings.layerwise_lr_decay or 1.0) ** layer_depth(n, model), parts.get(n, 0))
                for n, p in trained.items()
            ],
            settings,
        )
        for group in self._groups():
            group["peak"] = group["lr"]

    def _groups(self):
        return [g for o in self.all for g in o.param_groups]

    def step(self, factor: float) -> None:
        for group in self._groups():
            group["lr"] = group["peak"] * factor
        for optimizer in self.all:
            optimizer.step()

    def zero_grad(self) -> None:
        for optimizer in self.all:
            optimizer.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Tensor]:
        return {
            f"{self.names[p]}::{key}": torch.as_tensor(value)
            for optimizer in self.all
            for p, values in optimizer.state.items()
            for key, value in values.items()
            if value is not None
        }

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        owner = {self.names[p]: (o, p) for o in self.all for g in o.param_groups for p in g["params"]}
        for name, value in tensors.items():
            parameter, _, key = name.partition("::")
            optimizer, p = owner[parameter]
            if value.ndim and value.shape != p.shape and isinstance(optimizer, torch.optim.AdamW | Muon):
                raise UserError(
                    f"the checkpoint's optimizer state for {parameter} has shape {tuple(value.shape)}, expected {tuple(p.shape)}: "
                    "the run was started with a different version or device type",
                    hint="start a new run",
                )
            # AdamW's fused kernel keeps its step count on the parameter's device, in fp32
            optimizer.state[p][key] = value.to(p.device) if value.ndim else value.clone().to(p.device)


STACKS = ("encoder.", "decoder.", "heads.generator.encoder.")  # modules that contain Transformer layers


def matrix_parts(model: Model) -> dict[str, int]:
    """Return the weight matrices of the layers by name, with the number of matrices stacked in each (3 in a fused QKV)."""
    stacked = {"qkv": 3, "kv": 2, "up": 2 if model.config.gated else 1}
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    return {
        f"{name}.weight": stacked.get(name.rpartition(".")[2], 1)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and name.startswith(STACKS) and f"{name}.weight" in trained
    }


def layer_depth(name: str, model: Model) -> int:
    """Return the distance of a parameter from the heads in layers: 0 for heads, 1 for the last layer, most for embeddings.

    >>> from unmask.model.config import preset
    >>> model = Model(preset("bert-tiny", vocab_size=50), ("nsp",))
    >>> [layer_depth(f"{n}.weight", model) for n in ("heads.nsp.out", "encoder.layers.1.mlp.up", "encoder.embeddings.tokens")]
    [0, 1, 3]
    """
    if not name.startswith("encoder."):
        return 0
    number = re.match(r"encoder\.layers\.(\d+)\.", name)
    if number:  # ALBERT's shared layer is also the last one
        return 1 if model.config.shared_layers else max(1, model.config.layers - int(number[1]))
    return model.config.layers + 1 if name.startswith("encoder.embeddings.") else 1


def clip_grad_norm_(parameters: Iterable[nn.Parameter], max_norm: float) -> float:
    """Scale gradients down to a global norm of `max_norm` (0: never) and return the norm before clipping."""
    grads = [p.grad for p in parameters if p.grad is not None]
    norm = float(torch.nn.utils.get_total_norm(grads))
    if max_norm and norm > max_norm:
        for g in grads:
            g.mul_(max_norm / (norm + 1e-6))
    return norm
