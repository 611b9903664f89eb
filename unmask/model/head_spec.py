"""HeadSpec: the properties of a head, without torch. The modules are in heads.py.

A third-party package adds a head with an entry point that names its HeadSpec. Such a head works with every family. It is
saved in heads.safetensors, because the transformers class that opens the folder has no parameters for it:

    [project.entry-points."unmask.heads"]
    mine = "my_package.spec:HEAD"

    HEAD = HeadSpec("my_package.head:Mine", reads="row", requires=("pooler",))
"""

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from unmask.registry import Registry

if TYPE_CHECKING:
    from unmask.model.config import ModelConfig


@dataclass(frozen=True, slots=True)
class HeadSpec:
    module: str  # "package.module:Class" of an nn.Module, constructed with a ModelConfig
    # The arguments of its `forward`:
    # row: pooled vectors (B, D) if it requires the pooler, else hidden (B, T, D) and mask (B, T), None if nothing is padded
    # tokens: hidden states (…, D)
    # vocabulary: hidden states at selected positions (N, D), and the token embedding (V, D)
    reads: Literal["row", "tokens", "vocabulary"]
    requires: tuple[str, ...] = ()  # heads whose output it reads
    labeled: bool = False  # it has one output per entry of `config.labels`
    declared: bool = False  # detected only by `architectures` in config.json, because heads share tensor names
    outputs: tuple[str, ...] = ()  # output names in an exported graph, one per entry of the last axis; () = `logits`
    grouped: bool = False  # one score per row; the rows of one question are compared with each other
    answers: bool = True  # False: only other parts of the model read its output
    any_family: bool = True  # False: only for families that list it

    def build(self, config: "ModelConfig") -> Any:
        """Return the nn.Module; `Model.init` initializes its weights."""
        module, _, name = self.module.partition(":")
        return getattr(importlib.import_module(module), name)(config)


def _built_in(name: str, reads: Literal["row", "tokens", "vocabulary"], **traits: Any) -> HeadSpec:
    return HeadSpec(f"unmask.model.heads:{name}", reads, **traits, any_family=False)


_POOLED: dict[str, Any] = {"requires": ("pooler",)}
HEADS: Registry[HeadSpec] = Registry(  # in the order of a model's heads
    "heads",
    {
        "mlm": _built_in("MLM", "vocabulary"),
        "lm": _built_in("LM", "vocabulary"),
        "pooler": _built_in("Pooler", "row", answers=False),
        "nsp": _built_in("NSP", "row", **_POOLED),
        "sop": _built_in("SOP", "row", **_POOLED),
        "rtd": _built_in("RTD", "tokens"),
        "classify": _built_in("Classify", "row", **_POOLED, labeled=True, declared=True),
        "tag": _built_in("Tag", "tokens", labeled=True, declared=True),
        "answer": _built_in("Answer", "tokens", declared=True, outputs=("start_logits", "end_logits")),
        "choose": _built_in("Choose", "row", **_POOLED, declared=True, grouped=True),
        "bilm": _built_in("BiLM", "vocabulary"),
        "cbow": _built_in("CBOW", "vocabulary"),
        "generator": HeadSpec("unmask.model.model:Generator", "tokens", answers=False, any_family=False),
    },
)
