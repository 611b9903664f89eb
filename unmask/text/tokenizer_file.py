"""Check tokenizer.json before the library loads it, because a hostile file can cost unlimited memory and time.

| checked | because |
|---|---|
| number of entries, and their ids, against the model's vocabulary | millions of entries take minutes and gigabytes |
| by how much normalizer and decoder can expand a character (`MAX_EXPANSION`) | thirty `Replace` steps that double a text expand it a billion times |
| regular expressions (`patterns.py`) | some take exponential time |
| that a text of many scripts can be encoded | some files make the library panic (not an Exception) only in use |
"""

import base64
import binascii
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tokenizers

from unmask.errors import UserError, first_line
from unmask.files import COPY_AGAIN, parse_json, read_text
from unmask.json_checks import COUNT, NUMBER, OBJECT, STRING, Rule, check, check_fields, list_of, one_of, or_null
from unmask.text.patterns import is_linear_time

MAX_VOCAB_SIZE = 1_000_000  # entries, if the model's vocabulary size is unknown: XLM-V has 901,629
MAX_BYTES = 256 << 20
VALUES_PER_ENTRY, OTHER_VALUES = 8, 100_000  # JSON values per entry (subword, merge, added token), and all others
MAX_VALUES = VALUES_PER_ENTRY * MAX_VOCAB_SIZE + OTHER_VALUES
MAX_EXPANSION = 64  # characters that one character may become
MAX_STEPS = 100  # in all parts
MAX_CHARS = 1000  # of a setting or a token
_SEGMENT: Rule = (lambda v: COUNT[0](v) and v <= 1, "0 or 1")
PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
NESTED = ("normalizers", "pretokenizers", "processors", "decoders")
# Letters, accents and symbols of many scripts, full-width forms, and an emoji.
TEST_TEXT = " ".join(
    map(chr, [*range(32, 0x500), *range(0x2000, 0x2200), *range(0x3000, 0x3100), *range(0xFF01, 0xFFEF), 0x1F600])
)


def read(file: Path, vocab_size: int | None = None) -> tokenizers.Tokenizer:
    """Load and check a tokenizer.json. `vocab_size`: of the model."""
    text = read_text(file, MAX_BYTES)
    limit = min(vocab_size or MAX_VOCAB_SIZE, MAX_VOCAB_SIZE)
    try:
        raw = parse_json(text, VALUES_PER_ENTRY * limit + OTHER_VALUES)
    except ValueError as error:
        raise UserError(
            f"cannot read the tokenizer {file}: {error}", expected="a tokenizer.json", hint=COPY_AGAIN
        ) from None
    check(file, "the file", raw, OBJECT)
    check_fields(file, raw, dict.fromkeys(PARTS, or_null(OBJECT)) | {"model": OBJECT}, ("model",))
    check_fields(file, raw, dict.fromkeys(("truncation", "padding"), or_null(OBJECT)))
    check_fields(file, raw, {"added_tokens": or_null(list_of(OBJECT))})
    _check_model(file, raw["model"])
    added = raw.get("added_tokens") or []
    for number, token in enumerate(added):
        check_fields(file, token, {"id": COUNT, "content": STRING}, ("id", "content"), f"added_tokens[{number}].")
    ids = [*_ids(file, raw["model"]), *(token["id"] for token in added)]
    check_vocab_size(
        max([*ids, len(ids) - len(added) - 1], default=-1) + 1, limit if vocab_size is None else vocab_size
    )
    _check_steps(file, raw)
    return _build(file, text, raw)


def check_vocab_size(size: int, vocabulary: int) -> None:
    """Raise UserError if the model has fewer token embeddings than the tokenizer has ids."""
    if size > vocabulary:
        raise UserError(
            f"the tokenizer ({size:,} tokens) does not match the model ({vocabulary:,} token embeddings)",
            hint="put the tokenizer.json that the model was trained with into the folder of its weights",
        )


def check_usable(backend: tokenizers.Tokenizer, file: Path) -> None:
    """Encode and decode a text of many scripts, so that a broken file fails here, with its name."""
    try:
        backend.encode("a")
        encoding = backend.encode(TEST_TEXT, "a")
        backend.decode(encoding.ids, skip_special_tokens=False)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the library is not an Exception
        raise UserError(
            f"{file}: the tokenizer cannot encode a test text ({first_line(error)})", hint=COPY_AGAIN
        ) from None
    size = max(backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1
    if wrong := [i for i in encoding.ids if i >= size]:
        raise UserError(
            f"{file}: post_processor adds the id {wrong[0]}", expected=f"an id below {size:,}", hint=COPY_AGAIN
        )


def _check_model(file: Path, model: dict[str, Any]) -> None:
    rules = {
        "type": STRING,
        "unk_token": or_null(STRING),
        "unk_id": or_null(COUNT),
        "continuing_subword_prefix": or_null((lambda v: isinstance(v, str) and len(v) <= 64, "a short text")),
        "end_of_word_suffix": or_null((lambda v: isinstance(v, str) and len(v) <= 64, "a short text")),
        # Tokenization time is quadratic in it.
        "max_input_chars_per_word": (lambda v: COUNT[0](v) and v <= MAX_CHARS, f"a whole number up to {MAX_CHARS:,}"),
        "dropout": or_null(NUMBER),
        "vocab": (lambda v: isinstance(v, dict | list) and len(v) > 0, "an object or a list with the entries"),
    }
    check_fields(file, model, rules, ("vocab",), "model.")


def _ids(file: Path, model: dict[str, Any]) -> Iterator[int]:
    """Yield the ids of the vocabulary: {token: id}, or [[token, score], …] whose indices are the ids."""
    vocab = model["vocab"]
    for number, item in enumerate(vocab):
        token = item if isinstance(vocab, dict) else item[0] if isinstance(item, list) and len(item) == 2 else None
        field = f"model.vocab.{str(item)[:40]}" if isinstance(vocab, dict) else f"model.vocab[{number}]"
        if not isinstance(token, str):
            check(file, field, item, ((lambda v: False), "[token, score]"))
        elif len(token) > MAX_CHARS:
            raise UserError(f"{file}: {field} has {len(token):,} characters", expected=f"at most {MAX_CHARS:,}")
        value, rule = (vocab[item], COUNT) if isinstance(vocab, dict) else (item[1], NUMBER)
        if not rule[0](value):
            check(file, field, value, rule)
        yield value if isinstance(vocab, dict) else number


def _check_steps(file: Path, raw: dict[str, Any]) -> None:
    count = 0
    for part in PARTS:
        expansion = 1.0
        for field, step in _steps(file, raw.get(part), part):
            count += 1
            if count > MAX_STEPS:
                raise UserError(
                    f"{file}: {part} has more than {MAX_STEPS} steps", expected=f"at most {MAX_STEPS} in all parts"
                )
            expansion *= _expansion(file, field, step)
            if step.get("type") == "TemplateProcessing":
                _check_template(file, field, step)
            if expansion > MAX_EXPANSION:
                raise UserError(
                    f"{file}: {field} and the steps before it expand a text more than {MAX_EXPANSION} times",
                    expected=f"at most {MAX_EXPANSION} characters per character",
                )


def _steps(file: Path, value: Any, field: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (path of the field, step) for a step and the steps nested in it."""
    if value is None:
        return
    check(file, field, value, OBJECT)
    yield field, value
    for name in NESTED:
        if name in value:
            check(file, f"{field}.{name}", value[name], list_of(OBJECT))
            for number, step in enumerate(value[name]):
                yield from _steps(file, step, f"{field}.{name}[{number}]")


def _expansion(file: Path, field: str, step: dict[str, Any]) -> float:
    """Return the maximum number of characters that a step produces for one character."""
    if step.get("type") == "Precompiled":
        return _charsmap_expansion(file, field, step.get("precompiled_charsmap"))
    for name, value in step.items():
        if isinstance(value, str) and len(value) > MAX_CHARS:
            raise UserError(f"{file}: {field}.{name} has {len(value):,} characters", expected=f"at most {MAX_CHARS:,}")
    pattern = step.get("pattern")
    if not isinstance(pattern, dict):
        return 1.0
    regex, literal = pattern.get("Regex"), pattern.get("String")
    if isinstance(regex, str) and not is_linear_time(regex):
        raise UserError(
            f"{file}: {field}.pattern is {regex[:200]!r}, a regular expression that can be very slow on some texts",
            expected="patterns like GPT-2's or Llama's: + and * repeat one character or class, and nothing mandatory follows",
        )
    if isinstance(literal, str) and not 0 < len(literal) <= MAX_CHARS:
        raise UserError(f"{file}: {field}.pattern has {len(literal):,} characters", expected=f"1 to {MAX_CHARS:,}")
    content = step.get("content")
    if not isinstance(content, str) or not content or step.get("type") != "Replace":
        return 1.0
    # A regular expression can match the empty string, and then inserts text between all characters.
    return max(1.0, len(content) / len(literal)) if isinstance(literal, str) else 1.0 + len(content)


def _check_template(file: Path, field: str, step: dict[str, Any]) -> None:
    """Check a template; the library panics if a token is not in its table."""
    check_fields(file, step, {"special_tokens": OBJECT}, ("special_tokens",), f"{field}.")
    for name in ("single", "pair"):
        check_fields(file, step, {name: list_of(OBJECT)}, (name,), f"{field}.")
        for number, item in enumerate(step[name]):
            prefix = f"{field}.{name}[{number}]."
            check_fields(file, item, {"SpecialToken": OBJECT, "Sequence": OBJECT}, (), prefix)
            for kind, value in item.items():
                check(file, prefix + kind, value, OBJECT)
                rules = {
                    "type_id": _SEGMENT,
                    "id": one_of(*(step["special_tokens"] if kind == "SpecialToken" else "AB")),
                }
                check_fields(file, value, rules, ("id", "type_id"), f"{prefix}{kind}.")


def _charsmap_expansion(file: Path, field: str, value: Any) -> float:
    try:
        return table_expansion(base64.b64decode(value or "", validate=True))
    except (TypeError, ValueError, binascii.Error):
        raise UserError(f"{file}: {field}.precompiled_charsmap is not base64", hint=COPY_AGAIN) from None


def table_expansion(table: bytes) -> float:
    """Return the expansion by SentencePiece's normalization table: 4 bytes length, a trie, then zero-separated texts."""
    longest = max(map(len, table[4 + int.from_bytes(table[:4], "little") :].split(b"\0")))
    return 1.0 if longest <= 256 else longest / 2


def _build(file: Path, text: str, raw: dict[str, Any]) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(text)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise UserError(
            f"cannot read the tokenizer {file}: {_broken_part(raw)}: {first_line(error)}",
            expected="tokenizer.json, vocab.txt, vocab.json, spiece.model",
            hint=COPY_AGAIN,
        ) from None


def _broken_part(raw: dict[str, Any]) -> str:
    """Return the name of the part that cannot be loaded: without it, the rest can."""
    for name in (*PARTS, "added_tokens", "truncation", "padding"):
        if raw.get(name):
            try:
                tokenizers.Tokenizer.from_str(json.dumps(raw | {name: [] if name == "added_tokens" else None}))
                return name
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException:
                continue
    return "model"
