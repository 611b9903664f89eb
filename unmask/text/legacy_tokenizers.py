"""Load vocabulary files that are older than `tokenizer.json`.

| files | models | format |
|---|---|---|
| vocab.txt | BERT, DistilBERT, ELECTRA | one subword per line; lower-cased by `do_lower_case`, or else if the vocabulary is |
| vocab.json + merges.txt | GPT-2, RoBERTa, BART; GPT | byte-level BPE; lower-cased characters if words end with `</w>` (GPT) |
| spiece.model, sentencepiece.bpe.model | ALBERT, T5, XLM-R | SentencePiece 1808.06226: a protobuf of subwords with scores |

A SentencePiece file is parsed here, without its library. XLM-R shifts the ids: fairseq put <s> <pad> </s> <unk> before the
subwords and <mask> after them. T5's sentinels follow its subwords. ALBERT does not allow a subword to end with a digit and a
comma, so these subwords get a very low score.
"""

import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from unmask.errors import UserError, first_line
from unmask.files import COPY_AGAIN, file_size, path_exists, read_bytes, read_object, read_text
from unmask.json_checks import BOOLEAN, COUNT, check, check_fields, or_null
from unmask.protobuf import fields
from unmask.text.templates import SENTINELS, TEMPLATES, Template, add_special_tokens, find_roles
from unmask.text.tokenizer_file import (
    MAX_BYTES,
    MAX_EXPANSION,
    MAX_VALUES,
    MAX_VOCAB_SIZE,
    TEST_TEXT,
    check_vocab_size,
    table_expansion,
)

FILES = ("vocab.txt", "vocab.json", "merges.txt", "spiece.model", "sentencepiece.bpe.model", "added_tokens.json")
Loaded = tuple[tokenizers.Tokenizer, list[str]]  # with notes about settings that had to be guessed
MAX_SENTINELS = 1000
FLAGS = ("do_lower_case", "tokenize_chinese_chars", "strip_accents", "keep_accents", "add_prefix_space")
USE_TOKENIZER_JSON = "use a folder with tokenizer.json"
CONTROL, USER_DEFINED = 3, 4  # types of SentencePiece entries: never in text; always one token


def find(folder: Path) -> Path | None:
    """Return the vocabulary file of a folder, or None."""
    return next((folder / name for name in FILES[:5] if name != "merges.txt" and path_exists(folder / name)), None)


def read(file: Path, config: dict[str, Any], named: dict[str, str], vocab_size: int | None = None) -> Loaded:
    """Load a vocabulary file.

    `config`: tokenizer_config.json. `named`: role → special token. `vocab_size`: of the model.
    """
    check_fields(file.with_name("tokenizer_config.json"), config, dict.fromkeys(FLAGS, or_null(BOOLEAN)))
    reader: Callable[[Path, dict[str, Any], dict[str, str], int], Loaded] = (
        _load_sentencepiece if file.suffix == ".model" else _load_bpe if file.suffix == ".json" else _load_wordpiece
    )
    try:
        backend, notes = reader(file, config, named, MAX_VOCAB_SIZE if vocab_size is None else vocab_size)
        added = file.with_name("added_tokens.json")
        if path_exists(added):
            _add_tokens(backend, added)
    except (UserError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library raises bare Exception, or panics (not an Exception)
        raise UserError(
            f"cannot read the tokenizer {file}: {first_line(error)}",
            expected="tokenizer.json, vocab.txt, vocab.json, spiece.model",
            hint=COPY_AGAIN,
        ) from None
    return backend, notes


def _read_vocabulary(file: Path) -> dict[str, int]:
    """Read and check a JSON object token → id."""
    ids = read_object(file, MAX_BYTES, MAX_VALUES)
    for token, id in ids.items():
        if not COUNT[0](id):
            check(file, repr(token[:40]), id, COUNT)
    return ids


def _add_tokens(backend: tokenizers.Tokenizer, file: Path) -> None:
    """Add the tokens of added_tokens.json (token → id). The library can only assign the ids after the last one."""
    ids = _read_vocabulary(file)
    backend.add_tokens([AddedToken(token, normalized=False) for token in sorted(ids, key=lambda t: ids[t])])
    for token, id in ids.items():
        if (assigned := backend.token_to_id(token)) != id:
            raise UserError(
                f"{file}: the id of {token!r} is {id}, but the library assigned {'none' if assigned is None else assigned}",
                expected="ids that follow the last id of the vocabulary, without a gap",
                hint=USE_TOKENIZER_JSON,
            )


def _set_special_tokens(backend: tokenizers.Tokenizer, named: dict[str, str], template: Template, lstrip: bool) -> None:
    """Set the special tokens and the post-processor. With `lstrip`, [MASK] includes the space before it, as a word does."""
    vocabulary = backend.get_vocab()
    roles = {role: named.get(role) or token for role, token in template.roles.items()}
    tokens = [token for token in dict.fromkeys([*roles.values(), *template.last]) if token in vocabulary]
    add_special_tokens(backend, tokens, roles.get("mask") if lstrip else None)
    if not set(roles.values()) <= set(vocabulary):
        return  # Tokenizer.__init__ reports the missing one
    actual = {default: roles[role] for role, default in template.roles.items()}

    def rename(parts: list[str]) -> list[str]:
        split = (part.partition(":") for part in parts)
        return [actual.get(token, token) + colon + segment for token, colon, segment in split]

    Template(roles, rename(template.single), rename(template.pair)).set_post_processor(backend)


def _load_wordpiece(file: Path, config: dict[str, Any], named: dict[str, str], vocab_size: int) -> Loaded:
    tokens = read_text(file, MAX_BYTES).rstrip("\n").split("\n")
    check_vocab_size(len(tokens), vocab_size)
    vocabulary = {token: i for i, token in enumerate(tokens)}
    notes: list[str] = []
    lower = config.get("do_lower_case")
    if lower is None:
        capitals = sum(letter in vocabulary for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
        lower = capitals <= 13
        guess = "has no capital letters: text is lower-cased" if lower else "has capital letters: case is kept"
        notes.append(f"do_lower_case is not set in tokenizer_config.json, but {file} {guess}")
    unk = named.get("unk") or TEMPLATES["bert"].roles["unk"]
    backend = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=unk, max_input_chars_per_word=100))
    backend.normalizer = normalizers.BertNormalizer(
        handle_chinese_chars=config.get("tokenize_chinese_chars", True),
        strip_accents=config.get("strip_accents"),  # None: same as lowercase
        lowercase=lower,
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    _set_special_tokens(backend, named, TEMPLATES["bert"], lstrip=False)
    return backend, notes


def _load_bpe(file: Path, config: dict[str, Any], named: dict[str, str], vocab_size: int) -> Loaded:
    merges = file.with_name("merges.txt")
    if not merges.is_file():
        raise UserError(f"{file} needs merges.txt in the same folder", expected="both files, or tokenizer.json")
    file_size(merges)
    vocabulary = _read_vocabulary(file)
    check_vocab_size(len(vocabulary), vocab_size)
    if any(token.endswith("</w>") for token in vocabulary):  # GPT-1
        unk = named.get("unk") or "<unk>"
        model = models.BPE.from_file(str(file), str(merges), unk_token=unk, end_of_word_suffix="</w>")
        backend = tokenizers.Tokenizer(model)
        backend.normalizer = normalizers.BertNormalizer(lowercase=True)
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        backend.decoder = decoders.BPEDecoder(suffix="</w>")
        backend.add_special_tokens([AddedToken(unk, special=True, normalized=False)])
        return backend, []
    backend = tokenizers.Tokenizer(models.BPE.from_file(str(file), str(merges)))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(config.get("add_prefix_space", False)))
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.ByteLevel(trim_offsets=True)  # "Ġword" spans the word without its space
    mask = find_roles(vocabulary, named)["mask"]
    name = "roberta" if mask is not None and mask >= 0 else "gpt2"
    if name == "gpt2" and named.get("eos"):
        named = named | {role: named.get(role) or named["eos"] for role in ("pad", "unk", "sep")}
    _set_special_tokens(backend, named, TEMPLATES[name], lstrip=True)
    return backend, []


def _load_sentencepiece(file: Path, config: dict[str, Any], named: dict[str, str], vocab_size: int) -> Loaded:
    pieces, charsmap, settings = read_sentencepiece(file)
    vocabulary = [(piece, score) for piece, score, _ in pieces]
    first = [piece for piece, _, _ in pieces[:3]]
    steps: list[normalizers.Normalizer] = []
    template = TEMPLATES["t5"]
    if {"[CLS]", "[SEP]", "[MASK]"} <= {piece for piece, _ in vocabulary}:
        template = TEMPLATES["albert"]
        vocabulary = [(p, score - 100 if re.search(r"\d,$", p) else score) for p, score in vocabulary]
        steps = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
        if not config.get("keep_accents", False):
            steps += [normalizers.NFKD(), normalizers.StripAccents()]
        if config.get("do_lower_case", True):
            steps.append(normalizers.Lowercase())
    elif first == ["<unk>", "<s>", "</s>"]:
        template = TEMPLATES["roberta"]
        vocabulary = [(t, 0.0) for t in template.tokens[:4]] + vocabulary[3:] + [(template.tokens[4], 0.0)]
    elif first == ["<pad>", "</s>", "<unk>"]:
        count = config.get("extra_ids", SENTINELS)
        if type(count) is not int or not 0 <= count <= MAX_SENTINELS:
            raise UserError(f"{file}: extra_ids is {count!r}", expected=f"a whole number from 0 to {MAX_SENTINELS}")
        last = [f"<extra_id_{n}>" for n in reversed(range(count))]
        template = Template(template.roles, template.single, template.pair, last)
        vocabulary += [(token, 0.0) for token in last]
    else:
        raise UserError(
            f"{file}: unknown SentencePiece vocabulary, its first entries are {' '.join(first)}",
            expected="the vocabulary of ALBERT ([CLS] [SEP] [MASK]), T5 (<pad> </s> <unk>) or XLM-R (<unk> <s> </s>)",
            hint=USE_TOKENIZER_JSON,
        )
    unk = next(n for n, (piece, _) in enumerate(vocabulary) if piece == template.roles["unk"])
    backend = tokenizers.Tokenizer(models.Unigram(vocabulary, unk_id=unk, byte_fallback=bool(settings.get(35))))
    if charsmap:
        steps.append(_load_charsmap(charsmap, file))
    backend.normalizer = normalizers.Sequence(steps)
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    backend.decoder = decoders.Metaspace(prepend_scheme="always")
    tokens = {piece for piece, _ in vocabulary}
    added = [
        AddedToken(piece, normalized=False, special=kind == CONTROL)
        for piece, _, kind in pieces
        if kind in (CONTROL, USER_DEFINED) and piece in tokens
    ]
    backend.add_tokens(added)
    _set_special_tokens(backend, named, template, lstrip=True)
    return backend, []


def _load_charsmap(charsmap: bytes, file: Path) -> normalizers.Normalizer:
    """Load and test the normalization table: a damaged one makes the library panic (not an Exception) only in use."""
    if table_expansion(charsmap) > MAX_EXPANSION:
        raise UserError(f"{file}: its normalization table expands a character more than {MAX_EXPANSION} times")
    try:
        table = normalizers.Precompiled(charsmap)
        table.normalize_str(TEST_TEXT)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        raise UserError(
            f"cannot read {file}: its normalization table is damaged",
            expected="a SentencePiece model",
            hint=COPY_AGAIN,
        ) from None
    return table


def read_sentencepiece(file: Path) -> tuple[list[tuple[str, float, int]], bytes, dict[int, Any]]:
    """Parse a SentencePiece model: entries (text, score, type), normalization table, and training settings."""
    pieces: list[tuple[str, float, int]] = []
    charsmap, settings = b"", {}
    try:
        for number, value in fields(read_bytes(file, MAX_BYTES)):
            if not isinstance(value, bytes):
                continue
            inner = dict(fields(value)) if number in (1, 2, 3) else {}
            if number == 1:
                score = struct.unpack("<f", int(inner.get(2, 0)).to_bytes(4, "little"))[0]
                pieces.append((inner[1].decode(), score, inner.get(3, 1)))
            elif number == 2:
                settings = inner
            elif number == 3:
                charsmap = inner.get(2, b"")
        if len(pieces) < 4:
            raise ValueError(f"it has {len(pieces)} entries")
    except UserError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise UserError(f"cannot read {file}: {error}", expected="a SentencePiece model") from None
    if settings.get(3, 1) != 1:
        raise UserError(f"{file} is not a unigram model", expected="SentencePiece with --model_type=unigram")
    return pieces, charsmap, settings
