"""Choose the device and the precision."""

import subprocess
import sys
from functools import cache

import torch

from unmask.errors import UserError


def pick_device(name: str) -> torch.device:
    """Return the device; `auto` selects the first available of cuda, mps and cpu. Raise UserError if it is not available."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(device for device, present in available.items() if present)
    if not available.get(name):
        raise UserError(
            f"--device {name}: torch {torch.__version__} finds no such device",
            expected=", ".join(device for device, present in available.items() if present),
            hint="use --device cpu, or remove --device",
        )
    return torch.device(name)


def use_bf16(precision: str, device: torch.device) -> bool:
    """Return whether to compute in bfloat16. `auto` uses it only on GPUs that support it; on CPUs, a run replaces `auto` (`train/precision.py`)."""
    if precision != "bf16":
        return precision == "auto" and device.type == "cuda" and torch.cuda.is_bf16_supported()
    if device.type == "cpu" and _bf16_crashes():
        raise UserError(
            "this CPU reports bfloat16 support but crashes when using it",
            hint="use --precision fp32, or set in the shell: export ONEDNN_MAX_CPU_ISA=AVX2",
        )
    return True


@cache
def _bf16_crashes() -> bool:
    """Some virtual machines report AMX support, but its first instruction kills the process: try it in a child process."""
    trial = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); x @ x"
    return subprocess.run([sys.executable, "-c", trial], capture_output=True, check=False).returncode != 0
