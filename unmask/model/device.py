"""Where a model is computed, and how precisely."""

import subprocess
import sys

import torch

from unmask.errors import UserError


def pick_device(name: str) -> torch.device:
    """`auto` = the best there is. One that is asked for and not there is an error."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(device for device, present in there.items() if present)
    if not there.get(name):
        raise UserError(
            f"--device {name}, but torch {torch.__version__} finds none here",
            expected=", ".join(device for device, present in there.items() if present),
            hint="--device cpu, or leave it out",
        )
    return torch.device(name)


def use_bf16(precision: str, device: torch.device) -> bool:
    """`auto`: on GPUs that have it. CPUs without AMX are slower at it than at fp32."""
    if precision != "bf16":
        return precision == "auto" and device.type == "cuda" and torch.cuda.is_bf16_supported()
    if device.type == "cpu":
        # Some virtual machines announce AMX and die of its first instruction: let a child process try.
        trial = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); x @ x"
        if subprocess.run([sys.executable, "-c", trial], capture_output=True, check=False).returncode:
            raise UserError(
                "this processor announces bfloat16 and fails at it (the process would be killed)",
                hint="--precision fp32, or in the shell: export ONEDNN_MAX_CPU_ISA=AVX2",
            )
    return True
