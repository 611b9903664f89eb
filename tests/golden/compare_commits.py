"""Check whether two commits train, save and predict the same on this machine, bit for bit.

python tests/golden/compare_commits.py OLD NEW     (or: make golden OLD=<commit>)

Each commit is checked out into a temporary worktree and runs its own `tests/golden/recordings.py`, in one thread, because an older package
does not know today's keywords. Names that were changed between the two are mapped to today's names (`renamed.py`). All recorded values are
then compared exactly, including checksums of the weights. The exit code is 1 if anything differs.
"""

import json
import os
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

from recordings import differences
from renamed import to_current_names

ROOT = Path(__file__).parents[2]
MAX_DIFFERENCES_SHOWN = 5  # per case
SCRIPT = Path("tests", "golden", "recordings.py")


def git(*arguments: str) -> None:
    subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, stdout=subprocess.DEVNULL)


def record_cases(worktree: Path, out: Path) -> dict[str, Any]:
    """Run the worktree's recording script with the worktree's package. Return {case: recorded values} under today's names."""
    environment = os.environ | {"PYTHONPATH": str(worktree), "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, str(worktree / SCRIPT), "--to", str(out)], check=True, cwd=worktree, env=environment
    )
    recorded = json.loads(out.read_text("utf-8"))
    package = Path(recorded["package"]).resolve()
    assert package == (worktree / "unmask").resolve(), f"the script imported {package}, not the package of {worktree}"
    return {name: to_current_names(values) for name, values in recorded["cases"].items()}


def compare(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return one line per difference, at most MAX_DIFFERENCES_SHOWN for each case."""
    lines = [f"{name}: recorded by only one of the two commits" for name in sorted(old.keys() ^ new.keys())]
    for name in (name for name in new if name in old):
        changes = differences(new[name], old[name], tolerance=0, min_tolerance=0)
        lines += [f"{name}: {change[:300]}" for change in islice(changes, MAX_DIFFERENCES_SHOWN)]
    return lines


def main(old: str, new: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        worktrees = {side: Path(folder, side) for side in ("old", "new")}
        try:
            for commit, worktree in zip((old, new), worktrees.values()):
                git("worktree", "add", "--detach", str(worktree), commit)
            cases = {side: record_cases(worktree, Path(folder, f"{side}.json")) for side, worktree in worktrees.items()}
        finally:
            for worktree in (worktree for worktree in worktrees.values() if worktree.exists()):
                git("worktree", "remove", "--force", str(worktree))
    lines = compare(cases["old"], cases["new"])
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    summary = "they differ as listed above" if lines else "all are identical bit for bit"
    sys.stdout.write(f"compared {len(cases['new'])} runs: {summary}\n")
    return 1 if lines else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python tests/golden/compare_commits.py OLD NEW")
    sys.exit(main(*sys.argv[1:]))
