"""Sign-of-momentum optimizer that also keeps one number per row in its state."""

import torch


class Signs(torch.optim.Optimizer):
    def __init__(self, groups, lr):
        super().__init__(groups, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                memory = self.state[p].setdefault("memory", torch.zeros_like(p))
                self.state[p]["rows"] = memory.lerp_(p.grad, 0.5).flatten(1).norm(dim=1) if p.ndim > 1 else None
                p.sub_(memory.sign(), alpha=group["lr"])


def signs(trained, settings):
    lr = settings.lr or 1e-3
    return [Signs([{"params": [t.parameter], "lr": lr * t.lr_scale} for t in trained], lr)]
