"""A package of a third party, as pip would install it: modules, and a dist-info that names its entry points."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unmask.model.families import FAMILIES
from unmask.model.head_spec import HEADS
from unmask.registry import FORMATS, OBJECTIVES, OPTIMIZERS, TASKS

REGISTRIES = (FAMILIES, FORMATS, HEADS, OBJECTIVES, OPTIMIZERS, TASKS)


@contextmanager
def installed(folder: Path, modules: dict[str, str], points: dict[str, dict[str, str]]) -> Iterator[None]:
    """`points`: {"objectives": {"theirs": "strangers:Theirs"}}. Installed for the block alone."""
    for module, code in modules.items():
        (folder / f"{module}.py").write_text(code, "utf-8")
    info = folder / "strangers-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strangers\nVersion: 1.0\n")
    groups = {kind: "".join(f"{key} = {value}\n" for key, value in of.items()) for kind, of in points.items()}
    (info / "entry_points.txt").write_text("\n".join(f"[unmask.{kind}]\n{lines}" for kind, lines in groups.items()))
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    look_again()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for module in modules:
            sys.modules.pop(module, None)
        look_again()


def look_again() -> None:
    """Registries read the entry points once."""
    for registry in REGISTRIES:
        registry._others = None
        registry._broken.clear()
