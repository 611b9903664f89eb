"""Templates of special tokens for new tokenizers: their names, ids and positions in a row.

| template | ids 0, 1, … | one text | two texts |
|---|---|---|---|
| bert | [PAD] [UNK] [CLS] [SEP] [MASK] | [CLS] A [SEP] | [CLS] A [SEP] B [SEP] |
| albert | <pad> <unk> [CLS] [SEP] [MASK] | [CLS] A [SEP] | [CLS] A [SEP] B [SEP] |
| roberta (BART, XLM-R) | <s> <pad> </s> <unk> <mask> | <s> A </s> | <s> A </s> </s> B </s> |
| t5 | <pad> </s> <unk>; last <extra_id_99> … <extra_id_0> | A </s> | A </s> B </s> |
| gpt2 | <\\|endoftext\\|> | A | A B |

A token has one or more roles: `pad`, `unk`, `cls` (starts a row), `sep` (ends a text), `mask`. T5 and GPT-2 have no `cls` and
no `mask`. GPT-2 uses one token for the other three roles.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import tokenizers
from tokenizers import AddedToken, processors

ROLES = ("pad", "unk", "cls", "sep", "mask")
SENTINELS = 100  # T5's placeholders of removed spans


@dataclass(frozen=True)
class Template:
    roles: dict[str, str]  # role → token, in the order of their ids
    single: list[str]
    pair: list[str]
    last: list[str] = field(default_factory=list)  # tokens at the end of the vocabulary

    @property
    def tokens(self) -> list[str]:
        """Return the special tokens at the start of the vocabulary."""
        return list(dict.fromkeys(self.roles.values()))

    def set_post_processor(self, backend: tokenizers.Tokenizer) -> None:
        """Add a step that inserts the special tokens, after the post-processor that the tokenizer has already."""
        used = {part.split(":")[0] for part in self.pair} - {"$A", "$B"}
        if not used:
            return
        ids = [(token, backend.token_to_id(token)) for token in sorted(used)]
        step = processors.TemplateProcessing(single=self.single, pair=self.pair, special_tokens=ids)
        existing = backend.post_processor
        backend.post_processor = step if existing is None else processors.Sequence([existing, step])


def add_special_tokens(backend: tokenizers.Tokenizer, tokens: Iterable[str], mask: str | None) -> None:
    """Add tokens that are recognized in the text itself. `mask` includes the space before it, as a word does."""
    backend.add_special_tokens(
        [AddedToken(token, special=True, normalized=False, lstrip=token == mask) for token in tokens]
    )


def _template(tokens: str, order: tuple[str, ...], single: str, pair: str, last: list[str] | None = None) -> Template:
    return Template(dict(zip(order, tokens.split())), single.split(), pair.split(), last or [])


_BERT = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")
_END = "<|endoftext|>"

TEMPLATES = {
    "bert": _template("[PAD] [UNK] [CLS] [SEP] [MASK]", ROLES, *_BERT),
    "albert": _template("<pad> <unk> [CLS] [SEP] [MASK]", ROLES, *_BERT),
    "roberta": _template(
        "<s> <pad> </s> <unk> <mask>", ("cls", "pad", "sep", "unk", "mask"), "<s> $A </s>", "<s> $A </s> </s> $B </s>"
    ),
    "t5": _template(
        "<pad> </s> <unk>",
        ("pad", "sep", "unk"),
        "$A </s>",
        "$A </s> $B </s>",
        [f"<extra_id_{n}>" for n in reversed(range(SENTINELS))],
    ),
    "gpt2": _template(f"{_END} {_END} {_END}", ("pad", "unk", "sep"), "$A", "$A $B"),
}
BERT_SPECIAL_TOKENS = tuple(TEMPLATES["bert"].tokens)


def find_roles(vocabulary: dict[str, int], named: dict[str, str]) -> dict[str, int | None]:
    """Return role → id, by the names in `named` (`pad_token`, …, `eos_token` of a config) or those of the templates.

    A role without a token is None if this type of tokenizer does not have it (GPT-2, T5), or -1 if it is missing.

    >>> find_roles({"a": 0, "<|endoftext|>": 1}, {})
    {'pad': 1, 'unk': 1, 'cls': None, 'sep': 1, 'mask': None}
    >>> find_roles({"[PAD]": 0, "a": 1}, {"unk": "a"})
    {'pad': 0, 'unk': 1, 'cls': -1, 'sep': -1, 'mask': -1}
    """
    out: dict[str, int | None] = {}
    for role in ROLES:
        names = [named.get(role, ""), *(TEMPLATES[name].roles[role] for name in ("bert", "roberta"))]
        # `if name`: a vocabulary may contain an empty line, which must not match an unnamed role.
        out[role] = next((vocabulary[name] for name in names if name and name in vocabulary), -1)
    if -1 not in out.values():
        return out
    end = vocabulary.get(named.get("eos") or _END)
    fallback: dict[str, int | None] = {}
    if end is not None and out["sep"] in (-1, end):  # GPT-2, and others with an eos token
        fallback = {"pad": end, "unk": end, "sep": end, "cls": None, "mask": None}
    elif "<extra_id_0>" in vocabulary:  # T5
        fallback = {"cls": None, "mask": None}
    elif out["unk"] != -1 and out["cls"] == out["sep"] == out["pad"] == -1 and ".</w>" in vocabulary:
        # GPT-1 has no special token but <unk>, so <unk> ends a document.
        fallback = {"pad": out["unk"], "sep": out["unk"], "cls": None, "mask": None}
    return {role: fallback.get(role, id) if id == -1 else id for role, id in out.items()}
