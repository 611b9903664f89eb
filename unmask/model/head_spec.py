"""HeadSpec: what everybody but a model wants to know of a head, in one value without torch.

A third party adds a head by an entry point that names its HeadSpec. Such a head is saved in heads.safetensors, beside the
class of transformers that the folder names, and fits every family:

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
    module: str  # "package.module:Class" of an nn.Module, made of a ModelConfig
    # What its `forward` takes. row: the pooler's vectors (B, D) where it needs that, else hidden (B, T, D) and mask (B, T) or,
    # where no row is padded, None. tokens: hidden states (…, D). vocabulary: those at chosen positions (N, D), and the token embedding (V, D).
    reads: Literal["row", "tokens", "vocabulary"]
    requires: tuple[str, ...] = ()  # heads whose output it reads
    labeled: bool = False  # its outputs are `config.labels`
    declared: bool = False  # a folder has it only when `architectures` says so: others use the same names of tensors
    outputs: tuple[str, ...] = ()  # of an exported graph, one per number of the last axis; none = `logits`
    grouped: bool = False  # a number per row: the rows of one question are compared
    answers: bool = True  # False: only other parts of the model read it
    any_family: bool = True  # False: only families that name it have it

    def build(self, config: "ModelConfig") -> Any:
        """The nn.Module, with weights that nothing has drawn yet."""
        module, _, name = self.module.partition(":")
        return getattr(importlib.import_module(module), name)(config)


def _own(name: str, reads: Literal["row", "tokens", "vocabulary"], **traits: Any) -> HeadSpec:
    return HeadSpec(f"unmask.model.heads:{name}", reads, **traits, any_family=False)


_POOLED: dict[str, Any] = {"requires": ("pooler",)}
HEADS: Registry[HeadSpec] = Registry(  # in the order in which a model has them
    "heads",
    {
        "mlm": _own("MLM", "vocabulary"),
        "lm": _own("LM", "vocabulary"),
        "pooler": _own("Pooler", "row", answers=False),
        "nsp": _own("NSP", "row", **_POOLED),
        "sop": _own("SOP", "row", **_POOLED),
        "rtd": _own("RTD", "tokens"),
        "classify": _own("Classify", "row", **_POOLED, labeled=True, declared=True),
        "tag": _own("Tag", "tokens", labeled=True, declared=True),
        "answer": _own("Answer", "tokens", declared=True, outputs=("start_logits", "end_logits")),
        "choose": _own("Choose", "row", **_POOLED, declared=True, grouped=True),
        "bilm": _own("BiLM", "vocabulary"),
        "cbow": _own("CBOW", "vocabulary"),
        "generator": HeadSpec("unmask.model.model:Generator", "tokens", answers=False, any_family=False),
    },
)
