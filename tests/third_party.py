"""Third-party packages for tests: one that pip builds and installs, or modules with a dist-info that lists their entry points."""

import importlib
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from unmask.metrics import THIRD_PARTY, metric
from unmask.model.families import FAMILIES
from unmask.model.head_spec import HEADS
from unmask.registry import FORMATS, OBJECTIVES, OPTIMIZERS, TASKS

REGISTRIES = (THIRD_PARTY, FAMILIES, FORMATS, HEADS, OBJECTIVES, OPTIMIZERS, TASKS)
PACKAGES = Path(__file__).parent / "packages"


@contextmanager
def installed(folder: Path, modules: dict[str, str], points: dict[str, dict[str, str]]) -> Iterator[None]:
    """Install modules with entry points `points`, such as {"objectives": {"theirs": "strangers:Theirs"}}, for the block."""
    for module, code in modules.items():
        (folder / f"{module}.py").write_text(code, "utf-8")
    info = folder / "strangers-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strangers\nVersion: 1.0\n")
    groups = {kind: "".join(f"{key} = {value}\n" for key, value in of.items()) for kind, of in points.items()}
    (info / "entry_points.txt").write_text("\n".join(f"[unmask.{kind}]\n{lines}" for kind, lines in groups.items()))
    with on_path(folder, modules):
        yield


@contextmanager
def pip_installed(name: str, folder: Path) -> Iterator[Path]:
    """Build and install a package of tests/packages with pip, without the network, for the block. Yield its directory."""
    source, site = folder / "source", folder / "site"
    shutil.copytree(PACKAGES / name, source)  # the build writes into it
    options = ["-q", "--no-deps", "--no-index", "--no-build-isolation", "--no-cache-dir", "--target", str(site)]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", *options, str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with on_path(site, [name]):
        yield site


@contextmanager
def on_path(folder: Path, modules: Iterable[str]) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    reload_entry_points()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.partition(".")[0] in set(modules)]:
            del sys.modules[name]
        reload_entry_points()


def reload_entry_points() -> None:
    """Clear the registries, which read the entry points only once."""
    for registry in REGISTRIES:
        registry._others = None
        registry._broken.clear()
    metric.cache_clear()
