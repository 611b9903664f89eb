"""The tokenizer against transformers: what is saved here gives the same ids there."""

import json
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics

import pytest
from transformers import AutoTokenizer, BertTokenizer, BertTokenizerFast

from unmask.data.tokenizer import Tokenizer
from unmask.recipe import TokenizerRecipe

KINDS = ("wordpiece", "bpe", "unigram", "char", "byte")
CHINESE = (
    "我们昨天在学校的图书馆里读书，老师说这本书很有意思。",
    "学生们都喜欢看电影和听音乐，明天还要去公园！",
    "他在2024年买了一部iPhone手机，价格是５０００元。",
    "北京的冬天很冷，但是上海的夏天更热。",
)
ACCENTED = (
    "Été à la plage, où Zoë, naïve, mangea une crème brûlée près de l’hôtel.",
    "Über die Straße läuft ein großer Bär; ÄÖÜ sind Umlaute.",
    "El niño comió piñas en España, ¿verdad? ¡Sí!",
    "Příliš žluťoučký kůň úpěl ďábelské ódy. Cafe\u0301 nai\u0308ve",
)
TRICKY = [
    "",
    " ",
    "Hello, WORLD!don't  stop",
    "the president of the united [MASK].",
    "[MASK] of",
    "a[MASK]b [CLS] x [SEP]",
    "naïve Café CAFÉ cafe\u0301 Ångström",
    "中文没有空格，EnglishミックスКириллица",
    "\u3400\u4dbf\U00020000 豈 々",
    "tab\tnew\nline\r\nnull\x00bell\x07zero\u200bwidth\ufeffbom\u00a0nbsp\u3000wide",
    "👍🏽 👩‍👩‍👧 ☃ x👍y",
    "ﬁ ½ ² Ⅷ İstanbul ẞ ς Σ",
    "$9.99 a+b=c <tag> `code` ~ ^ | {x} [y] \\ _under_",
    "한국어 ไทย हिन्दी עברית العربية",
    "x" * 101 + " " + "y" * 100,
    "\ufffd�",
]


def lines():
    """1,000 lines: Python's documentation, Chinese, accents, and the tricky ones."""
    text = [line for topic in topics.values() for line in topic.splitlines() if line.strip()]
    chinese = [CHINESE[i % 4] + CHINESE[(i * 3 + 1) % 4][: i % 17] for i in range(100)]
    accented = [ACCENTED[i % 4] + " " + ACCENTED[(i * 3 + 1) % 4][: i % 31] for i in range(100)]
    rest = 1000 - len(chinese) - len(accented) - len(TRICKY)
    return text[:: len(text) // rest][:rest] + chinese + accented + TRICKY


@cache
def train(kind, lowercase=True, accents="auto", size=2000):
    settings = TokenizerRecipe(
        kind=kind, vocab_size=size, lowercase=lowercase, strip_accents=accents, special_tokens=["<URL>"]
    )
    return Tokenizer.train([*topics.values(), *CHINESE * 30, *ACCENTED * 30], settings)


def beside(folder, model_type, tokenizer, **config):
    tokenizer.save(folder, segments=model_type == "bert", max_length=128)
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | config), "utf-8")
    return AutoTokenizer.from_pretrained(folder)


def ids(theirs, texts):
    return theirs(texts, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("accents", ["yes", "no"])
@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_auto_tokenizer_gives_equal_ids(kind, lowercase, accents, tmp_path):
    texts = lines()
    assert len(texts) == 1000
    ours = train(kind, lowercase, accents)
    expected = [encoding.ids for encoding in ours.encode_batch(texts)]
    assert any(ours.unk in row for row in expected) == (kind not in ("bpe", "byte"))
    for model_type in ("bert", "modernbert"):
        theirs = beside(tmp_path / model_type, model_type, ours)
        assert ids(theirs, texts) == expected
        assert len(theirs) == ours.size


@pytest.mark.parametrize("kind", KINDS)
def test_the_tokenizer_class_is_what_keeps_them_equal(kind, tmp_path):
    """The comparison above does go red: with BERT's class, BERT's rules silently replace those of the file."""
    ours = train(kind, False, "no")
    texts = lines()
    theirs = beside(tmp_path, "bert", ours, tokenizer_class="BertTokenizerFast")
    assert ids(theirs, texts) != [encoding.ids for encoding in ours.encode_batch(texts)]


@pytest.mark.parametrize("kind", KINDS)
def test_model_inputs(kind, tmp_path):
    ours = train(kind, True, "yes")
    theirs = beside(tmp_path / "bert", "bert", ours)
    a, b = ours.encode("one two"), ours.encode("three")
    pair = theirs("one two", "three")
    assert pair["input_ids"] == [ours.cls, *a, ours.sep, *b, ours.sep]
    assert pair["token_type_ids"] == [0] * (len(a) + 2) + [1] * (len(b) + 1)
    assert pair["attention_mask"] == [1] * len(pair["input_ids"])
    assert theirs("one two")["input_ids"] == [ours.cls, *a, ours.sep]
    named = (theirs.pad_token_id, theirs.unk_token_id, theirs.cls_token_id, theirs.sep_token_id, theirs.mask_token_id)
    assert named == (0, 1, 2, 3, 4)
    assert "<URL>" in theirs.all_special_tokens
    assert theirs.model_max_length == 128
    modern = beside(tmp_path / "modernbert", "modernbert", ours)("one two", "three")
    assert set(modern) == {"input_ids", "attention_mask"}  # ModernBERT takes no token_type_ids
    assert ours.decode(a) == theirs.decode(a)


@pytest.mark.parametrize("lowercase", [True, False])
def test_wordpiece_is_berts(lowercase, tmp_path):
    """An old folder (vocab.txt) opens to the same ids here and in BERT's own classes; Google's, where at hand."""
    train("wordpiece", lowercase, "yes" if lowercase else "no").save(tmp_path)
    files = [tmp_path / "vocab.txt"]
    google = Path(__file__).parents[3] / "shared/data/vocabs"
    if google.is_dir():
        name = "google_uncased_en_vocab.txt" if lowercase else "google_cased_en_vocab.txt"
        files += [google / name, google / "google_zh_vocab.txt"]
    texts = lines()
    for number, file in enumerate(files):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "vocab.txt").write_bytes(file.read_bytes())
        (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lowercase}))
        ours = [encoding.ids for encoding in Tokenizer.load(folder).encode_batch(texts)]
        for theirs in (BertTokenizerFast, BertTokenizer):
            assert ours == ids(theirs.from_pretrained(folder), texts)
    trained = Tokenizer.load(tmp_path)  # and a tokenizer trained here is such a one
    old = Tokenizer.load(tmp_path / "0")
    without = [text for text in texts if "<URL>" not in text]
    assert [trained.encode(text) for text in without] == [old.encode(text) for text in without]
