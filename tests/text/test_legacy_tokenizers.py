"""Tokenizers of old model directories: missing settings are inferred with a note, and unreadable files raise.

Agreement with transformers is in tests/parity/test_tokenizer.py.

"""

import json

import pytest

from unmask.errors import UserError
from unmask.text.legacy_tokenizers import read_sentencepiece
from unmask.text.tokenizer import Tokenizer

SPECIAL = "[PAD] [UNK] [CLS] [SEP] [MASK]"


def write(folder, **files):
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text if isinstance(text, str) else json.dumps(text), "utf-8")
    return folder


def lines(text):
    return "\n".join(text.split()) + "\n"


@pytest.mark.parametrize("cased", [True, False])
def test_casing_of_a_bare_vocabulary_is_inferred_with_a_note(cased, tmp_path):
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if cased else "abcdefghijklmnopqrstuvwxyz"
    write(tmp_path, vocab__txt=lines(f"{SPECIAL} {' '.join(letters)} the The"))
    tokenizer = Tokenizer.load(tmp_path)
    assert [tokenizer.token(i) for i in tokenizer.encode("The")] == ["The" if cased else "the"]
    (note,) = tokenizer.notes
    assert ("case is kept" if cased else "lower-cased") in note
    write(tmp_path, tokenizer_config__json={"do_lower_case": cased})  # an explicit setting wins, and there is no note
    tokenizer = Tokenizer.load(tmp_path)
    assert [tokenizer.token(i) for i in tokenizer.encode("The")] == ["the" if cased else "The"]
    assert tokenizer.notes == []


def test_added_tokens_follow_the_vocabulary(tmp_path):
    write(tmp_path, vocab__txt=lines(f"{SPECIAL} a b"), added_tokens__json={"<x>": 8, "<w>": 7})
    assert Tokenizer.load(tmp_path).encode("a <w><x> b") == [5, 7, 8, 6]


@pytest.mark.parametrize(
    "added", [{"<x>": 9}, {"<x>": 7, "<w>": 7}, {"a": 7}, {"<x>": "7"}, {"<x>": None}, {"<x>": True}, {"": 7}, ["<x>"]]
)
def test_added_token_with_invalid_id_raises(added, tmp_path):
    write(tmp_path, vocab__txt=lines(f"{SPECIAL} a b"), added_tokens__json=added)
    with pytest.raises(UserError, match=r"added_tokens\.json(: (the id of|'<x>' is ('7'|null|true))| is a list)"):
        Tokenizer.load(tmp_path)
    write(tmp_path, added_tokens__json={"a": 5, "<x>": 7})  # entries of the vocabulary may be repeated
    assert Tokenizer.load(tmp_path).encode("a <x>") == [5, 7]


def sentencepiece(tokens, charsmap=b""):
    """A model file: field 1 holds a token, field 3 the normalizer, whose field 2 is the table."""

    def part(number, data):
        size = bytes([len(data)]) if len(data) < 128 else bytes([len(data) & 127 | 128, len(data) >> 7])
        return bytes([number << 3 | 2]) + size + data

    return b"".join(part(1, part(1, token.encode())) for token in tokens) + part(3, part(2, charsmap))


def test_a_damaged_normalization_table_is_rejected(tmp_path):
    tokens = ["<pad>", "</s>", "<unk>", "▁a", "b"]
    model = tmp_path / "spiece.model"
    model.write_bytes(sentencepiece(tokens))
    assert Tokenizer.load(tmp_path).encode("ab") == [3, 4]
    for tree in (b"\xff" * 8, b"\xff" * 64):  # after its size; its entries point outside of it
        model.write_bytes(sentencepiece(tokens, len(tree).to_bytes(4, "little") + tree + b"x\0"))
        with pytest.raises(UserError, match="normalization table is damaged"):
            Tokenizer.load(tmp_path)


@pytest.mark.parametrize("count", [-1, 1001, 10**9, "100", True, None])
def test_the_number_of_sentinels_is_bounded(count, tmp_path):
    (tmp_path / "spiece.model").write_bytes(sentencepiece(["<pad>", "</s>", "<unk>", "▁a"]))
    write(tmp_path, tokenizer_config__json={"extra_ids": 2})
    assert Tokenizer.load(tmp_path).size == 6
    write(tmp_path, tokenizer_config__json={"extra_ids": count})
    with pytest.raises(UserError, match="extra_ids"):
        Tokenizer.load(tmp_path)


def test_empty_vocabulary_line_takes_an_id(tmp_path):
    write(tmp_path, vocab__txt="[PAD]\n[UNK]\n\n[CLS]\n[SEP]\n[MASK]\na\n")
    tokenizer = Tokenizer.load(tmp_path)
    assert (tokenizer.pad, tokenizer.unk, tokenizer.cls, tokenizer.sep, tokenizer.mask) == (0, 1, 3, 4, 5)


def test_special_tokens_may_have_other_names(tmp_path):
    write(
        tmp_path,
        vocab__txt=lines("<blank> [UNK] [BEGIN] [SEP] [MASK] a"),
        tokenizer_config__json={"pad_token": "<blank>", "cls_token": {"content": "[BEGIN]"}},
    )
    tokenizer = Tokenizer.load(tmp_path)
    assert (tokenizer.pad, tokenizer.cls) == (0, 2)
    assert tokenizer.backend.encode("a", "a").ids == [2, 5, 3, 5, 3]


def test_unreadable_tokenizers_raise(tmp_path):
    write(tmp_path / "a", vocab__json={"a": 0})
    with pytest.raises(UserError, match=r"vocab\.json needs merges\.txt"):
        Tokenizer.load(tmp_path / "a")
    (tmp_path / "b").mkdir()
    model = tmp_path / "b" / "spiece.model"
    for data in (b"", b"nonsense", bytes(range(200))):
        model.write_bytes(data)
        with pytest.raises(UserError, match=r"cannot read .*spiece\.model"):
            Tokenizer.load(tmp_path / "b")
    model.write_bytes(b"".join(b"\x0a\x03\x0a\x01" + token for token in (b"a", b"b", b"c", b"d")))
    with pytest.raises(UserError, match="its first entries are a b c"):
        Tokenizer.load(tmp_path / "b")
    assert [token for token, _, _ in read_sentencepiece(model)[0]] == ["a", "b", "c", "d"]
    model.write_bytes(model.read_bytes() + b"\x12\x02\x18\x02")  # trainer_spec.model_type: BPE
    with pytest.raises(UserError, match="not a unigram model"):
        Tokenizer.load(tmp_path / "b")


def test_missing_special_token_roles(tmp_path):
    write(tmp_path / "gpt2", vocab__json={"a": 0, "b": 1, "<|endoftext|>": 2}, merges__txt="#version: 0.2\n")
    tokenizer = Tokenizer.load(tmp_path / "gpt2")
    assert (tokenizer.cls, tokenizer.mask) == (None, None)
    assert (tokenizer.pad, tokenizer.unk, tokenizer.sep) == (2, 2, 2)
    assert tokenizer.config_ids() == {"pad_id": None, "cls_id": 2, "sep_id": 2}
    write(tmp_path / "gpt", vocab__json={"<unk>": 0, "a</w>": 1, ".</w>": 2, "a": 3}, merges__txt="#version: 0.2\n")
    tokenizer = Tokenizer.load(tmp_path / "gpt")
    assert (tokenizer.pad, tokenizer.unk, tokenizer.cls, tokenizer.sep, tokenizer.mask) == (0, 0, None, 0, None)
    assert tokenizer.encode("A.") == [1, 2]
