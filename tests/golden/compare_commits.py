"""Do two commits train, save and answer the same, to the last bit, on this machine?

python tests/golden/compare_commits.py OLD NEW     (or: make golden OLD=<commit>)

Both are checked out into temporary worktrees. The runs of NEW's `recordings.py` are made with each, in one thread, and everything that
is recorded of them is compared exactly, checksums of the weights included. Exit code 1 when anything differs.
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

SHOWN = 5  # differences of a case
RUNS = Path("tests", "golden", "recordings.py")


def git(*words: str) -> None:
    subprocess.run(["git", "-C", str(Path(__file__).parent), *words], check=True, stdout=subprocess.DEVNULL)


def runs_of(tree: Path, script: Path, out: Path) -> dict[str, Any]:
    """What the script records with the package of that tree."""
    variables = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, str(script), "--to", str(out)], check=True, cwd=tree, env=variables)
    found = json.loads(out.read_text("utf-8"))
    assert Path(found["package"]).resolve() == (tree / "unmask").resolve(), f"{found['package']} was run, not {tree}"
    return found["cases"]


def compare(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """A line per difference, the first ones of each case."""
    lines = [f"{name}: not in both" for name in sorted(set(old) ^ set(new))]
    for name in (name for name in new if name in old):
        found = differences(new[name], old[name], 0, 0)
        lines += [f"{name}: {text[:300]}" for text in islice(found, SHOWN)]
    return lines


def main(old: str, new: str) -> int:
    with tempfile.TemporaryDirectory() as place:
        trees = {name: Path(place, name) for name in ("old", "new")}
        try:
            for commit, tree in zip((old, new), trees.values()):
                git("worktree", "add", "--detach", str(tree), commit)
            script = trees["new"] / RUNS
            found = {name: runs_of(tree, script, Path(place, f"{name}.json")) for name, tree in trees.items()}
        finally:
            for tree in (tree for tree in trees.values() if tree.exists()):
                git("worktree", "remove", "--force", str(tree))
    lines = compare(found["old"], found["new"])
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.write(f"{len(found['new'])} runs, {'differences as above' if lines else 'the same bit for bit'}\n")
    return 1 if lines else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("python tests/golden/compare_commits.py OLD NEW")
    sys.exit(main(*sys.argv[1:]))
