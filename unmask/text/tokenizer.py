"""Tokenizer: text → ids, trained here or loaded, saved as a `tokenizer.json` that Hugging Face libraries read.

| type | subwords | normalization, in addition to `lowercase` and `strip_accents` |
|---|---|---|
| wordpiece | BERT 1810.04805: longest match first, `##` inside words | BERT's: clean, CJK one by one |
| bpe | byte-level, as GPT-2 and RoBERTa; never unknown | none: lossless when cased |
| unigram | 1804.10959, as SentencePiece: `▁` is a space | NFKC, runs of spaces become one |
| char | one per character, including spaces | NFC |
| byte | one per UTF-8 byte, in order of its value; never unknown | none: lossless when cased |

Ids of a new tokenizer: the special tokens of its family's template (`templates.py`; BERT's [PAD] [UNK] [CLS] [SEP] [MASK]
are 0 to 4), then the user's special tokens, then the subwords (`vocabulary.py`). Special tokens are recognized in the
text itself and are never split or lower-cased.
If subwords include the space before them (bpe, unigram), [MASK] includes that space too, as RoBERTa's does: in
"the united [MASK]" it replaces " states". `strip_accents` removes every combining mark, including vowels in Thai or
Hindi, as BERT does.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import processors

from unmask.errors import UserError, command
from unmask.files import new_file, path_exists, read_object
from unmask.hub import resolve
from unmask.json_checks import STRING, check
from unmask.recipe import TokenizerRecipe
from unmask.renamed import hashed
from unmask.text import legacy_tokenizers, tokenizer_file
from unmask.text.cache import cache_dir
from unmask.text.checked import verify_folder
from unmask.text.corpus import Corpus
from unmask.text.templates import ROLES, TEMPLATES, add_special_tokens, find_roles
from unmask.text.vocabulary import CJK, train_vocabulary

NAMES = (*ROLES, "bos", "eos")  # special tokens that a tokenizer_config.json may name
FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", *legacy_tokenizers.FILES)

# Words for counting: an ideograph, or a run of other characters between spaces.
_WORD = re.compile(f"[{CJK}]|[^\\s{CJK}]+")


class Tokenizer:
    """Text ↔ ids of a masked language model, and the ids of its special tokens.

    >>> settings = TokenizerRecipe(type="char", special_tokens=["<user>"])
    >>> t = Tokenizer.train(["a cab, a cab"], settings)
    >>> [t.token(i) for i in t.encode("<user> a[MASK]d")]
    ['<user>', ' ', 'a', '[MASK]', '[UNK]']
    """

    def __init__(self, backend: tokenizers.Tokenizer, named: dict[str, str] | None = None):
        """`named`: role ("pad", "unk", "cls", "sep", "mask", "eos") → token; other roles are found by their usual tokens."""
        # A tokenizer.json may carry its owner's truncation (sentence-transformers: 128) and padding.
        backend.no_truncation()
        backend.no_padding()
        self.backend = backend
        self.trained_on: dict[str, int] = {}  # documents, read_bytes, used_bytes; empty when loaded
        self.notes: list[str] = []  # assumptions made where its files are ambiguous
        vocabulary = backend.get_vocab(with_added_tokens=True)
        self.size: int = max(vocabulary.values()) + 1  # ids of other projects' vocabularies may have gaps
        self.special = np.zeros(self.size, bool)
        for i, added in backend.get_added_tokens_decoder().items():
            self.special[i] |= added.special
        roles = find_roles(vocabulary, named or {})
        usual = {role: f"{TEMPLATES['bert'].roles[role]} or {TEMPLATES['roberta'].roles[role]}" for role in ROLES}
        missing = [f"{role} ({usual[role]})" for role, id in roles.items() if id == -1]
        if missing:
            raise UserError(
                f"the tokenizer has no {', no '.join(missing)} token",
                expected="a tokenizer of a masked language model, with pad, unk, cls, sep and mask tokens",
                hint="name them in special_tokens_map.json, or train a tokenizer: unmask tokenizer train CORPUS",
            )
        self.roles = {role: id for role, id in roles.items() if id is not None}
        # Every tokenizer has a token for padding, for unknown words and for the end of a text.
        self.pad, self.unk, self.sep = (self.roles[role] for role in ("pad", "unk", "sep"))
        self.cls = self.roles.get("cls")  # None: sequences start with the text (T5, GPT-2)
        self.mask = self.roles.get("mask")  # None: nothing can be masked (T5, GPT-2)
        self.special[list(self.roles.values())] = True
        # T5's <extra_id_0>, <extra_id_1>, …: placeholders of removed spans
        self.sentinels: list[int] = []
        while (id := vocabulary.get(f"<extra_id_{len(self.sentinels)}>")) is not None:
            self.sentinels.append(id)
        self.special[self.sentinels] = True
        self.type: str = _type(backend)

    def check_vocab_size(self, vocabulary: int) -> None:
        """Raise UserError if the model has fewer token embeddings than the tokenizer has ids."""
        tokenizer_file.check_vocab_size(self.size, vocabulary)

    def check_segments(self, count: int) -> None:
        """Raise UserError if the model has fewer segment ids than the tokenizer uses for a pair; a model without segments ignores them."""
        max_segment = max(
            (segment for parts in self.special_token_layout for part in parts for _, segment in part), default=0
        )
        if 1 < count <= max_segment:
            raise UserError(
                f"the tokenizer uses {max_segment + 1} segment ids, but the model has {count}: they do not belong together"
            )

    @classmethod
    def train(
        cls, texts: Iterable[str], settings: TokenizerRecipe, progress: Callable[[int], None] | None = None
    ) -> "Tokenizer":
        """Train on a sample of `settings.sample_mb` MB of `texts`; `progress` is called with the number of bytes read."""
        settings = settings.resolve_auto()
        backend, special, counts = train_vocabulary(texts, settings, progress)
        _finish(backend, settings, special)
        tokenizer = cls(backend)
        tokenizer.trained_on = counts
        return tokenizer

    @classmethod
    def load(cls, path: str | Path, vocab_size: int | None = None) -> "Tokenizer":
        """Load a folder, a `tokenizer.json`, an older vocabulary file (`legacy_tokenizers.py`) or a Hub model.

        `vocab_size`: of the model; a larger tokenizer is rejected before it is built.
        """
        path = resolve(path, FILES)
        folder = path if path.is_dir() else path.parent
        file: Path | None = path
        if path.is_dir():
            file = folder / "tokenizer.json"
            file = file if path_exists(file) else legacy_tokenizers.find(folder)
        if file is None:
            raise UserError(
                f"no tokenizer in {path}",
                expected="a folder with tokenizer.json, vocab.txt, vocab.json and merges.txt, or spiece.model",
            )
        configs = [folder / name for name in ("tokenizer_config.json", "special_tokens_map.json")]
        config = {key: value for file in configs if path_exists(file) for key, value in read_object(file).items()}
        named = {name: _named(config, name, folder) for name in NAMES}
        notes: list[str] = []
        if file.suffix in (".txt", ".model") or file.name == "vocab.json":
            backend, notes = legacy_tokenizers.read(file, config, named, vocab_size)
        else:
            backend = tokenizer_file.read(file, vocab_size)
        tokenizer = cls(backend, named)
        if vocab_size is not None:
            tokenizer.check_vocab_size(vocab_size)
        tokenizer_file.check_usable(backend, file)
        tokenizer.notes = notes
        return tokenizer

    def save(self, folder: str | Path, segments: bool = True, max_length: int = 512) -> None:
        """Save files that `transformers.AutoTokenizer` opens with the same ids.

        `segments`: whether the model takes token_type_ids (BERT does, ModernBERT does not).
        `max_length`: number of positions of the model.
        """
        folder = Path(folder)
        named = dict(self.roles)
        if not self.token(self.sep).startswith("["):  # generation stops at eos
            named["eos"] = self.sep
            if not self.sentinels:
                named["bos"] = self.roles.get("cls", self.sep)
        config: dict[str, Any] = {
            # Trap: without this class, AutoTokenizer with `model_type: bert` silently replaces the normalizer and
            # pre-tokenizer of tokenizer.json by BERT's.
            "tokenizer_class": "PreTrainedTokenizerFast",
            **{f"{name}_token": self.token(i) for name, i in named.items()},
            "additional_special_tokens": [
                self.token(int(i)) for i in np.flatnonzero(self.special) if i not in named.values()
            ],
            "model_input_names": ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"],
            "model_max_length": max_length,
            "clean_up_tokenization_spaces": False,
        }
        files = {
            "tokenizer.json": self.backend.to_str(pretty=True),  # its own `save` raises bare Exception on a full disk
            "tokenizer_config.json": json.dumps(config, indent=2, ensure_ascii=False) + "\n",
        }
        if self.type == "wordpiece":
            files["vocab.txt"] = "".join(self.token(i) + "\n" for i in range(self.size))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with ExitStack() as stack:  # all files, or none
                for name, text in files.items():
                    file = stack.enter_context(new_file(folder / name))
                    file.write(text.encode())
                    file.flush()
        except OSError as error:
            raise UserError(
                f"cannot write the tokenizer to {folder}: {error.strerror or error}",
                hint="free disk space (unmask cache prune), or choose another folder",
            ) from error

    def config_ids(self) -> dict[str, int | None]:
        """Return the special token ids for the config of a new model.

        GPT-2 has one token for all roles. It is not set as the padding id, because the padding embedding is never trained.
        """
        one_token = self.pad == self.sep
        return {
            "pad_id": None if one_token else self.pad,
            "cls_id": self.sep if one_token and self.cls is None else self.cls,
            "sep_id": self.sep,
        }

    def fingerprint(self) -> str:
        """Return a checksum of everything that determines ids."""
        text = json.dumps(json.loads(self.backend.to_str()), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0].ids

    def encode_batch(self, texts: Iterable[str]) -> list[tokenizers.Encoding]:
        """Encode without adding special tokens. `offsets` are [start, end) in characters of the given text.

        `▁word` of unigram, and its [MASK], include the space before them. Several byte-level tokens of one
        character all span that character.
        """
        texts = list(texts)
        try:
            return self.backend.encode_batch(texts, add_special_tokens=False)
        except TypeError:  # half of a surrogate pair; its replacement has the same length, so offsets stay valid
            texts = [re.sub("[\ud800-\udfff]", "\ufffd", text) for text in texts]
            return self.backend.encode_batch(texts, add_special_tokens=False)

    def build_inputs_with_special_tokens(
        self, a: Sequence[int], b: Sequence[int] | None = None
    ) -> tuple[list[int], list[int]]:
        """Return ids and segment ids of one text or a pair, with special tokens as in the tokenizer's post-processor.

        >>> t = Tokenizer.train(["a cab, a cab"], TokenizerRecipe(type="char"))
        >>> ids, segments = t.build_inputs_with_special_tokens(t.encode("a"), t.encode("b"))
        >>> [t.token(i) for i in ids], segments
        (['[CLS]', 'a', '[SEP]', 'b', '[SEP]'], [0, 0, 0, 1, 1])
        """
        before, between, after = self.special_token_layout[b is not None]
        ids = [*(i for i, _ in before), *a, *(i for i, _ in between), *(b or ()), *(i for i, _ in after)]
        second = after[-1][1] if after else 0  # RoBERTa has no segments
        segments = [*(s for _, s in before), *[0] * len(a), *(s for _, s in between), *[second] * len(b or ())]
        return ids, segments + [s for _, s in after]

    @cached_property
    def special_token_layout(self) -> tuple[list[list[tuple[int, int]]], list[list[tuple[int, int]]]]:
        """Return (id, segment) of the special tokens before, between and after the texts: for one text, and for a pair."""
        out = []
        for texts in (1, 2):
            encoding = self.backend.encode("a", "a" if texts == 2 else None)
            parts: list[list[tuple[int, int]]] = [[], [], []]
            seen = 0
            for id, segment, text in zip(encoding.ids, encoding.type_ids, encoding.sequence_ids):
                if text is None:
                    parts[2 if seen == texts else seen].append((id, segment))
                else:
                    seen = text + 1
            if not any(parts) and self.cls is not None:  # a tokenizer.json without a post-processor: use BERT's
                parts = [[(self.cls, 0)], [(self.sep, 0)] if texts == 2 else [], [(self.sep, texts - 1)]]
            out.append(parts)
        return out[0], out[1]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of `ids`, with special tokens."""
        return self.backend.decode([int(i) for i in ids], skip_special_tokens=False)

    def token(self, id: int) -> str:
        """Return the vocabulary entry of an id, or '' if the vocabulary has a gap there."""
        return self.backend.id_to_token(int(id)) or ""

    @property
    def mask_token(self) -> str:
        """Return the mask token as text."""
        if self.mask is None:
            raise UserError(
                "this tokenizer has no mask token",
                expected="a masked language model: bert, roberta, albert, distilbert, electra, modernbert",
            )
        return self.token(self.mask)

    def report(self, texts: Iterable[str]) -> dict[str, Any]:
        """Measure how well the vocabulary fits `texts`, which should not be its training text.

        Words are separated by spaces; a Chinese character is a word. `unk_rate` is a fraction of tokens.
        """
        words = characters = 0
        used = np.zeros(self.size, np.int64)
        texts = iter(texts)
        while batch := list(islice(texts, 1000)):
            words += sum(len(_WORD.findall(text)) for text in batch)
            characters += sum(len(text) for text in batch)
            for encoding in self.encode_batch(batch):
                used += np.bincount(encoding.ids, minlength=self.size)
        tokens = int(used.sum())
        entries = [self.token(int(i)) for i in np.flatnonzero(~self.special)]
        return {
            "type": self.type,
            "vocabulary": self.size,
            "tokens": tokens,
            "words": words,
            "tokens_per_word": tokens / max(words, 1),
            "characters_per_token": characters / max(tokens, 1),
            "unk_rate": int(used[self.unk]) / max(tokens, 1),
            "vocabulary_used": int(np.count_nonzero(used[~self.special])) / max(len(entries), 1),
            "longest": sorted(entries, key=lambda token: (-len(token), token))[:10],
        }


def _finish(backend: tokenizers.Tokenizer, settings: TokenizerRecipe, special: list[str]) -> None:
    """Add the special tokens and the post-processor (`[CLS] A [SEP] B [SEP]`)."""
    kind, template = settings.type, TEMPLATES[settings.template]
    tokens = [*special, *template.last]
    add_special_tokens(backend, tokens, template.roles.get("mask") if kind in ("bpe", "unigram") else None)
    if kind in ("bpe", "byte"):  # "Ġword" spans the word without the space before it
        backend.post_processor = processors.ByteLevel(trim_offsets=kind == "bpe")
    template.set_post_processor(backend)


def _type(backend: tokenizers.Tokenizer) -> str:
    model = type(backend.model).__name__
    if model == "BPE":
        return "bpe" if json.loads(backend.to_str())["model"]["merges"] else "byte"
    return {"WordPiece": "wordpiece", "Unigram": "unigram", "WordLevel": "char"}[model]


def _named(config: dict[str, Any], name: str, folder: Path) -> str:
    """Return the token of a role, which is written as "[CLS]" or as {"content": "[CLS]", …}."""
    token = config.get(f"{name}_token") or ""
    token = token.get("content") if isinstance(token, dict) else token
    check(folder / "tokenizer_config.json", f"{name}_token", token, STRING)
    return str(token)


def tokenizer_folder(corpus: Corpus, settings: TokenizerRecipe) -> Path:
    """Return the cache folder of the tokenizer trained with these settings on this corpus."""
    settings = settings.resolve_auto()
    old_names = json.dumps(
        hashed("tokenizer", settings.model_dump(mode="json")), separators=(",", ":"), ensure_ascii=False
    )
    key = hashlib.sha256(f"{corpus.fingerprint()}\0{old_names}".encode()).hexdigest()[:16]
    return cache_dir() / "tokenizers" / f"{settings.type}-{settings.vocab_size or 'auto'}-{key}"


def cached_tokenizer(folder: Path) -> Tokenizer:
    """Load a tokenizer from the cache and verify its checksums, if it has any (older versions wrote none)."""
    if any(folder.glob("*.sum")):
        verify_folder(folder, f"{command('rm -r', folder)}  (then run the same command again)")
    return Tokenizer.load(folder)
