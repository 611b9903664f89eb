"""Tokenizers of folders that are older than `tokenizer.json`, made into one.

| files | whose | particular |
|---|---|---|
| vocab.txt | BERT, DistilBERT, ELECTRA | one piece per line; case by `do_lower_case`, else by the vocabulary |
| vocab.json + merges.txt | GPT-2, RoBERTa, BART; GPT | bytes; or, with `</w>` at the ends of words, lower-cased letters |
| spiece.model, sentencepiece.bpe.model | ALBERT, T5, XLM-R | SentencePiece 1808.06226: a protobuf of pieces with scores |

A SentencePiece file is read here, not by its library. Its ids are shifted for XLM-R: fairseq put <s> <pad> </s> <unk> in
front of the pieces, and <mask> behind them. T5's sentinels stand behind its pieces too. ALBERT does not let a piece end in
a digit and a comma, for which such pieces get a very low score.
"""

import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from unmask.errors import UserError, first_line
from unmask.files import AGAIN, is_there, read_bytes, read_object, read_text, size_of
from unmask.json_checks import BOOLEAN, COUNT, check, check_fields, or_null
from unmask.protobuf import fields
from unmask.text.templates import SENTINELS, TEMPLATES, Template, add_special_tokens, find_roles
from unmask.text.tokenizer_file import BYTES, EACH, GROWTH, MOST, OTHER, SAMPLE, check_vocab_size, table_growth

FILES = ("vocab.txt", "vocab.json", "merges.txt", "spiece.model", "sentencepiece.bpe.model", "added_tokens.json")
Foreign = tuple[tokenizers.Tokenizer, list[str]]  # and what had to be guessed, in sentences
MOST_SENTINELS = 1000
FLAGS = ("do_lower_case", "tokenize_chinese_chars", "strip_accents", "keep_accents", "add_prefix_space")
CONTROL, OWN = 3, 4  # types of a SentencePiece piece: never in text; always one token


def find(folder: Path) -> Path | None:
    """The file of a folder that holds its vocabulary."""
    return next((folder / name for name in FILES[:5] if name != "merges.txt" and is_there(folder / name)), None)


def read(file: Path, config: dict[str, Any], named: dict[str, str], most: int | None = None) -> Foreign:
    """`config`: tokenizer_config.json; `named`: its special tokens, by role; `most`: how many tokens the model has."""
    check_fields(file.with_name("tokenizer_config.json"), config, dict.fromkeys(FLAGS, or_null(BOOLEAN)))
    reader: Callable[[Path, dict[str, Any], dict[str, str], int], Foreign] = (
        _sentencepiece if file.suffix == ".model" else _bytes if file.suffix == ".json" else _bert
    )
    try:
        backend, notes = reader(file, config, named, MOST if most is None else most)
        added = file.with_name("added_tokens.json")
        if is_there(added):
            _add(backend, added)
    except (UserError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library raises bare Exception, or panics, which is none
        raise UserError(
            f"cannot read the tokenizer {file}: {first_line(error)}",
            expected="tokenizer.json, vocab.txt, vocab.json, spiece.model",
            hint=AGAIN,
        ) from None
    return backend, notes


def _vocabulary(file: Path) -> dict[str, int]:
    """{piece: id}."""
    found = read_object(file, BYTES, EACH * MOST + OTHER)
    for token, number in found.items():
        if not COUNT[0](number):
            check(file, repr(token[:40]), number, COUNT)
    return found


def _add(backend: tokenizers.Tokenizer, file: Path) -> None:
    """The tokens of added_tokens.json (token → id). The library counts on from the last id, so no other can be had."""
    ids = _vocabulary(file)
    backend.add_tokens([AddedToken(token, normalized=False) for token in sorted(ids, key=lambda t: ids[t])])
    for token, number in ids.items():
        if (got := backend.token_to_id(token)) != number:
            raise UserError(
                f"{file}: the id of {token!r} is {number}, but its place is {'none' if got is None else got}",
                expected="ids that count on from the last of the vocabulary, without a gap",
                hint="a folder with tokenizer.json",
            )


def _special(backend: tokenizers.Tokenizer, named: dict[str, str], template: Template, lstrip: bool) -> None:
    """The special tokens recognised in the text, and put around it; [MASK] takes the blank before it, as a word would."""
    vocabulary = backend.get_vocab()
    roles = {role: named.get(role) or token for role, token in template.roles.items()}
    tokens = [token for token in dict.fromkeys([*roles.values(), *template.last]) if token in vocabulary]
    add_special_tokens(backend, tokens, roles.get("mask") if lstrip else None)
    if not set(roles.values()) <= set(vocabulary):
        return  # the caller says which one is missing
    renamed = {usual: roles[role] for role, usual in template.roles.items()}

    def rename(parts: list[str]) -> list[str]:
        split = (part.partition(":") for part in parts)
        return [renamed.get(token, token) + colon + segment for token, colon, segment in split]

    Template(roles, rename(template.single), rename(template.pair)).set_post_processor(backend)


def _bert(file: Path, config: dict[str, Any], named: dict[str, str], most: int) -> Foreign:
    tokens = read_text(file, BYTES).rstrip("\n").split("\n")
    check_vocab_size(len(tokens), most)
    vocabulary = {token: i for i, token in enumerate(tokens)}
    notes: list[str] = []
    lower = config.get("do_lower_case")
    if lower is None:
        capitals = sum(letter in vocabulary for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
        lower = capitals <= 13
        how = "has no capital letters: text is lower-cased" if lower else "has capital letters: case is kept"
        notes.append(f"no tokenizer_config.json says do_lower_case, but {file} {how}")
    unk = named.get("unk") or TEMPLATES["bert"].roles["unk"]
    backend = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=unk, max_input_chars_per_word=100))
    backend.normalizer = normalizers.BertNormalizer(
        handle_chinese_chars=config.get("tokenize_chinese_chars", True),
        strip_accents=config.get("strip_accents"),  # None: as lowercase
        lowercase=lower,
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    _special(backend, named, TEMPLATES["bert"], lstrip=False)
    return backend, notes


def _bytes(file: Path, config: dict[str, Any], named: dict[str, str], most: int) -> Foreign:
    merges = file.with_name("merges.txt")
    if not merges.is_file():
        raise UserError(f"{file} needs merges.txt in the same folder", expected="both files, or tokenizer.json")
    size_of(merges)
    vocabulary = _vocabulary(file)
    check_vocab_size(len(vocabulary), most)
    if any(token.endswith("</w>") for token in vocabulary):  # GPT, the first
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
    backend.post_processor = processors.ByteLevel(trim_offsets=True)  # "Ġword" spans the word, not the blank
    found = find_roles(vocabulary, named)
    name = "roberta" if isinstance(found["mask"], int) and found["mask"] >= 0 else "gpt2"
    if name == "gpt2" and named.get("eos"):
        named = named | {role: named.get(role) or named["eos"] for role in ("pad", "unk", "sep")}
    _special(backend, named, TEMPLATES[name], lstrip=True)
    return backend, []


def _sentencepiece(file: Path, config: dict[str, Any], named: dict[str, str], most: int) -> Foreign:
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
        if type(count) is not int or not 0 <= count <= MOST_SENTINELS:
            raise UserError(f"extra_ids: {count!r} beside {file}", expected=f"a number from 0 to {MOST_SENTINELS}")
        last = [f"<extra_id_{n}>" for n in reversed(range(count))]
        template = Template(template.roles, template.single, template.pair, last)
        vocabulary += [(token, 0.0) for token in last]
    else:
        raise UserError(
            f"{file}: its first pieces are {' '.join(first)}",
            expected="the SentencePiece file of ALBERT ([CLS] [SEP] [MASK]), T5 (<pad> </s> <unk>) or XLM-R (<unk> <s> </s>)",
            hint="a folder with tokenizer.json",
        )
    unk = next(n for n, (piece, _) in enumerate(vocabulary) if piece == template.roles["unk"])
    backend = tokenizers.Tokenizer(models.Unigram(vocabulary, unk_id=unk, byte_fallback=bool(settings.get(35))))
    if charsmap:
        steps.append(_precompiled(charsmap, file))
    backend.normalizer = normalizers.Sequence(steps)
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    backend.decoder = decoders.Metaspace(prepend_scheme="always")
    known = {piece for piece, _ in vocabulary}
    added = [
        AddedToken(piece, normalized=False, special=kind == CONTROL)
        for piece, _, kind in pieces
        if kind in (CONTROL, OWN) and piece in known
    ]
    backend.add_tokens(added)
    _special(backend, named, template, lstrip=True)
    return backend, []


def _precompiled(charsmap: bytes, file: Path) -> normalizers.Normalizer:
    """Return the normalization table after a test: on a damaged one the library panics (not an Exception) only in use."""
    if table_growth(charsmap) > GROWTH:
        raise UserError(f"{file}: its table of normalisation makes a character more than {GROWTH} times as long")
    try:
        table = normalizers.Precompiled(charsmap)
        table.normalize_str(SAMPLE)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        raise UserError(
            f"cannot read {file}: its table of normalisation is damaged",
            expected="a SentencePiece model",
            hint="copy or download the file again",
        ) from None
    return table


def read_sentencepiece(file: Path) -> tuple[list[tuple[str, float, int]], bytes, dict[int, Any]]:
    """A SentencePiece model: its pieces (text, score, type), its table of normalisation, and how it was trained."""
    pieces: list[tuple[str, float, int]] = []
    charsmap, settings = b"", {}
    try:
        for number, value in fields(read_bytes(file, BYTES)):
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
            raise ValueError(f"{len(pieces)} pieces")
    except UserError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise UserError(f"cannot read {file}: {error}", expected="a SentencePiece model") from None
    if settings.get(3, 1) != 1:
        raise UserError(f"{file} is not a unigram model", expected="SentencePiece with --model_type=unigram")
    return pieces, charsmap, settings
