"""Tokenizer training: the learned vocabulary, determinism, and offsets into the raw text.

Agreement with transformers is in tests/parity/test_tokenizer.py.

"""

import json
import os
import pickle
import re
import subprocess
import sys
import unicodedata
from pydoc_data.topics import topics

import pytest

from unmask.errors import UserError
from unmask.recipe import TokenizerRecipe
from unmask.text.templates import BERT_SPECIAL_TOKENS
from unmask.text.tokenizer import Tokenizer
from unmask.text.vocabulary import sample_text

KINDS = ("wordpiece", "bpe", "unigram", "char", "byte")
TRAINED_TYPES = ("wordpiece", "bpe", "unigram")
CHINESE = "我们昨天在学校的图书馆里读书，老师说这本书很有意思。学生们都喜欢看电影和听音乐，明天还要去公园！" * 20
ACCENTED = "Été à la plage, où Zoë, naïve, mangea une crème brûlée près de l’hôtel Übermut. " * 20
TEXTS = [*topics.values(), CHINESE, ACCENTED]
TRICKY = (
    "the president of the united [MASK], don't  STOP.\n\tＦｕｌｌ ｗｉｄｔｈ "
    "café cafe\u0301 👍🏽 x👩‍👩‍👧y 学校的书 İ ﬁ ½ 한글 "
)


def train(kind="wordpiece", texts=TEXTS, vocab_size=2000, **settings):
    kind = settings.pop("type", kind)
    return Tokenizer.train(texts, TokenizerRecipe(type=kind, vocab_size=vocab_size, **settings))


@pytest.fixture(scope="module")
def trained():
    """One tokenizer per (type, lowercase)."""
    return {
        (kind, lower): train(kind, lowercase=lower, special_tokens=["<url>", "[E1]"])
        for kind in KINDS
        for lower in (True, False)
    }


def fold(text):
    """Letters only: no case, width, ligature or accent."""
    return "".join(c for c in unicodedata.normalize("NFKD", text).lower() if not unicodedata.combining(c)).strip()


def tokens(tokenizer, text):
    return [tokenizer.token(i) for i in tokenizer.encode(text)]


@pytest.mark.parametrize("kind", TRAINED_TYPES)
def test_vocabulary_has_exactly_the_requested_size(kind, trained):
    assert trained[kind, True].size == 2000
    assert trained[kind, False].size == 2000


def test_bytes_are_in_order(trained):
    tokenizer = trained["byte", False]
    assert tokenizer.size == 7 + 256
    assert tokenizer.encode("é\n") == [7 + byte for byte in "é\n".encode()]


def test_characters_are_tokens_and_unseen_ones_unknown(trained):
    assert tokens(trained["char", True], "A 书☃") == ["a", " ", "书", "[UNK]"]
    assert train("char", vocab_size=20).size == 20


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens(kind, trained):
    tokenizer = trained[kind, True]
    assert (tokenizer.pad, tokenizer.unk, tokenizer.cls, tokenizer.sep, tokenizer.mask) == (0, 1, 2, 3, 4)
    assert [tokenizer.token(i) for i in range(7)] == [*BERT_SPECIAL_TOKENS, "<url>", "[E1]"]
    assert tokenizer.special.nonzero()[0].tolist() == list(range(7))
    ids = tokenizer.encode("see<url>now [E1]")  # never split, even inside a word; never lowercased
    assert ids.count(5) == 1
    assert ids.count(6) == 1
    assert not {5, 6} & set(tokenizer.encode("see <URL> now [e1]"))


@pytest.mark.parametrize("kind", KINDS)
def test_mask_in_text_replaces_a_word(kind, trained):
    """The ids of "of [MASK] in" are those of "of the in" with those of " the" replaced by one mask."""
    tokenizer = trained[kind, True]
    before, word, after = "a list of", " the", " in it"
    whole = tokenizer.encode(before + word + after)
    first, last = tokenizer.encode(before), tokenizer.encode(before + word)
    assert whole[: len(last)] == last  # otherwise the comparison below would be meaningless
    space_tokens = (
        tokenizer.encode("a b")[1:-1] if kind in ("char", "byte") else []
    )  # there the space is a separate token
    assert tokenizer.encode(before + " [MASK]" + after) == first + space_tokens + [4] + whole[len(last) :]
    assert tokenizer.encode("the president of the united [MASK]")[-1] == 4


def test_custom_special_tokens_are_excluded_from_training():
    texts = ["<zyxwv> one two " * 50]
    assert "z" in train(texts=texts, vocab_size=25).backend.get_vocab()
    tokenizer = train(texts=texts, vocab_size=18, special_tokens=["<zyxwv>"])
    assert [token for token in tokenizer.backend.get_vocab() if "z" in token] == ["<zyxwv>"]


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_offsets_point_into_the_raw_text(kind, lower, trained):
    """Each token's span contains the token's letters, and together the spans cover all letters."""
    (encoding,) = trained[kind, lower].encode_batch([TRICKY])
    covered = [False] * len(TRICKY)
    position = 0
    for id, token, (start, end) in zip(encoding.ids, encoding.tokens, encoding.offsets):
        assert 0 <= start <= end <= len(TRICKY)
        assert start >= position  # in order; byte-level tokens of one character may share its span
        position = start
        covered[start:end] = [True] * (end - start)
        token = re.sub("^(##|▁|Ġ)", "", token)
        if (kind in ("bpe", "byte") and not token.isascii()) or id == 1:
            continue  # a part of a character, or unknown: there are no letters to compare
        assert fold(token) in fold(TRICKY[start:end]), (token, TRICKY[start:end])
    missed = [c for c, seen in zip(TRICKY, covered) if not seen]
    assert all(c.isspace() or unicodedata.combining(c) or c == "\u200d" for c in missed), missed
    emoji = TRICKY.index("👍")
    assert any(start <= emoji < end for start, end in encoding.offsets)
    mask = encoding.ids.index(4)
    assert TRICKY[slice(*encoding.offsets[mask])].strip() == "[MASK]"


@pytest.mark.parametrize("kind", ["bpe", "byte"])
def test_bytes_are_lossless_when_cased_and_never_unknown(kind, trained):
    tokenizer = trained[kind, False]
    text = TRICKY.replace("[MASK]", "")
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.unk not in tokenizer.encode("☃ 龘 \x00 ﷽")
    lower = trained[kind, True]
    assert lower.decode(lower.encode("Café É한글")) == "cafe e한글"


@pytest.mark.parametrize("kind", KINDS)
def test_accents_and_case_are_separate_choices(kind):
    kept = train(kind, strip_accents="no", lowercase=True)
    assert kept.encode("ZOË") == kept.encode("zoë") != kept.encode("zoe")
    stripped = train(kind, strip_accents="yes", lowercase=False)
    assert stripped.encode("Zoë") == stripped.encode("Zoe") != stripped.encode("zoe")


def test_wordpiece_splits_as_bert(trained):
    assert "".join(tokens(trained["wordpiece", True], "学校，Été!?")).replace("##", "") == "学校，ete!?"
    assert tokens(trained["wordpiece", True], "学校的")[:3] == ["学", "校", "的"]
    assert tokens(trained["wordpiece", True], "a\x00\u200bb") == tokens(trained["wordpiece", True], "ab")


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
def test_rare_characters_do_not_fill_the_vocabulary(kind):
    """1,000 characters that occur twice each in a long text take at most 25% of a small vocabulary."""
    rare = "".join(chr(c) for c in range(0x4E00, 0x4E00 + 1000)) * 2
    tokenizer = train(kind, [*(topics.values()), *topics.values(), *topics.values(), rare], 1000)
    assert sum("\u4e00" <= t[-1] <= "\u9fff" for t in tokenizer.backend.get_vocab()) <= 250
    assert len(tokens(tokenizer, "function")) < 5
    assert tokenizer.unk in tokenizer.encode(rare[999])


@pytest.mark.parametrize("kind", TRAINED_TYPES)
def test_chinese_text_gets_a_full_alphabet(kind):
    characters = [chr(c) for c in range(0x4E00, 0x4E00 + 1500)]
    text = ["".join(characters[i % 1500] for i in range(k, 60_000, 7)) for k in range(7)]
    tokenizer = train(kind, text, 1505)
    covered = set(characters) & set(tokenizer.backend.get_vocab())
    assert len(covered) >= {"wordpiece": 1500, "unigram": 1485, "bpe": 0}[kind]  # unigram: 99%, then subwords
    assert (tokenizer.unk in tokenizer.encode("".join(characters))) == (kind == "unigram")


SCRIPT = """
import sys
from pydoc_data.topics import topics
from unmask.text.tokenizer import Tokenizer
from unmask.recipe import TokenizerRecipe
for kind in ("wordpiece", "bpe", "unigram", "char", "byte"):
    tokenizer = Tokenizer.train(topics.values(), TokenizerRecipe(type=kind, vocab_size=2500))
    print(kind, tokenizer.fingerprint())
assert "torch" not in sys.modules and "transformers" not in sys.modules
"""


def test_training_gives_the_same_vocabulary_in_every_process():
    """Hash tables are seeded per process and sums depend on threads: three processes, one of them with one thread."""
    runs = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT], env=os.environ | extra, capture_output=True, text=True, check=True
        ).stdout
        for extra in ({}, {}, {"RAYON_NUM_THREADS": "1"})
    ]
    assert len(runs[0].split()) == 10
    assert runs[0] == runs[1] == runs[2]


@pytest.mark.parametrize("kind", TRAINED_TYPES)
def test_vocabulary_larger_than_the_text_supports_raises(kind):
    texts = list(topics.values())[:8]
    with pytest.raises(UserError, match="larger than the text supports") as error:
        train(kind, texts, 30_000)
    hint = int(re.search(r"--vocab-size (\d+)", error.value.hint)[1])
    assert hint > 300
    assert train(kind, texts, hint).size == hint  # the suggested command works


@pytest.mark.parametrize(
    ("texts", "settings", "message"),
    [
        ([], {}, "no text"),
        (["", " \n"], {}, "no text"),
        (["abc"], {}, "no character occurs 2 times"),
        (["abc"], {"type": "char"}, "no character occurs 2 times"),
        (["☃ ☃"], {}, "hint:     use more text"),
        (["a b"], {"special_tokens": ["[MASK]"]}, "special_tokens"),
        (["a b"], {"special_tokens": ["x", "x"]}, "special_tokens"),
        (["a b"], {"special_tokens": [" "]}, "special_tokens"),
        (["a b"], {"type": "bpe", "vocab_size": 200}, "at least 261"),
    ],
)
def test_invalid_settings_raise(texts, settings, message):
    with pytest.raises(UserError, match=message):
        train(**{"texts": texts} | settings)


def test_sample_is_bounded_spread_and_repeatable():
    documents = [f"{i:06d} " * 100 for i in range(2000)]  # 1.4 MB
    seen = []
    samples, counts = sample_text(iter(documents), 100_000, seen.append)
    assert samples == sample_text(iter(documents), 100_000)[0]
    assert counts == {"documents": 2000, "read_bytes": 1_400_000, "used_bytes": sum(map(len, samples))}
    assert 98_000 < counts["used_bytes"] <= 100_000
    assert seen[-1] == 1_400_000
    ordinals = [int(sample[:6]) for sample in samples]
    assert ordinals == sorted(ordinals)
    quarters = [sum(q * 500 <= o < (q + 1) * 500 for o in ordinals) for q in range(4)]
    assert min(quarters) > 15  # of 142, spread over the whole
    one = sample_text(["".join(documents)], 100_000)[0]  # one huge document is sampled inside, cut between words
    assert {int(n) // 500_000 for sample in one for n in sample.split()} == {0}
    assert len({int(sample.split()[0]) // 500 for sample in one}) == 4
    assert all(re.fullmatch(r"\s?(\d{6}\s)*\d{6}\s?", sample) for sample in one)
    assert "".join(sample_text(["中" * 20_000 + " x"], 1e9)[0]) == "中" * 20_000 + " x"


def test_training_uses_the_sample():
    tokenizer = train(sample_mb=0.2, vocab_size=1000)
    assert tokenizer.trained_on["used_bytes"] <= 200_000 < tokenizer.trained_on["read_bytes"]
    assert tokenizer.trained_on["documents"] == len(TEXTS)


@pytest.mark.parametrize("kind", KINDS)
def test_saved_loaded_and_pickled_tokenizers_are_equal(kind, trained, tmp_path):
    tokenizer = trained[kind, True]
    tokenizer.save(tmp_path)
    for other in (Tokenizer.load(tmp_path), Tokenizer.load(tmp_path / "tokenizer.json")):
        assert other.fingerprint() == tokenizer.fingerprint()
        assert (other.type, other.size, other.mask) == (kind, tokenizer.size, 4)
        assert (other.special == tokenizer.special).all()
    assert pickle.loads(pickle.dumps(tokenizer)).encode(TRICKY) == tokenizer.encode(TRICKY)
    assert tokenizer.fingerprint() != trained[kind, False].fingerprint()
    assert (tmp_path / "vocab.txt").exists() == (kind == "wordpiece")


FULL = """
import resource, signal, sys
from unmask.text.tokenizer import Tokenizer
from unmask.errors import UserError
tokenizer = Tokenizer.load(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))
try:
    tokenizer.save(sys.argv[2])
except UserError as error:
    print(error)
"""


@pytest.mark.parametrize("kind", KINDS)
def test_saving_to_a_full_disk_or_an_invalid_folder_raises(kind, trained, tmp_path):
    """The system rejects files above 2,048 bytes, as on a full disk."""
    trained[kind, True].save(tmp_path / "good")
    command = [sys.executable, "-c", FULL, str(tmp_path / "good"), str(tmp_path / "full")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(
        f"cannot write the tokenizer to {tmp_path / 'full'}: File too large\n  hint:     free disk space"
    )
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write the tokenizer to .*: (File exists|Not a directory)"):
        trained[kind, True].save(tmp_path / "file")


def test_old_folder_with_vocab_txt_only(trained, tmp_path):
    tokenizer = trained["wordpiece", True]
    tokenizer.save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "tokenizer_config.json").unlink()
    assert Tokenizer.load(tmp_path).encode(TRICKY) == tokenizer.encode(TRICKY)
    assert Tokenizer.load(tmp_path / "vocab.txt").encode(TRICKY) == tokenizer.encode(TRICKY)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    cased = Tokenizer.load(tmp_path)
    assert cased.encode("The") != cased.encode("the") == tokenizer.encode("The")


def test_special_tokens_of_other_families_are_recognized(trained, tmp_path):
    trained["bpe", False].save(tmp_path)
    text = (tmp_path / "tokenizer.json").read_text("utf-8")
    roberta = {"[PAD]": "<pad>", "[UNK]": "<unk>", "[CLS]": "<s>", "[SEP]": "</s>", "[MASK]": "<mask>"}
    for ours, theirs in roberta.items():
        text = text.replace(ours, theirs)
    value = json.loads(text) | {
        "truncation": {"max_length": 3, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    }
    (tmp_path / "tokenizer_config.json").unlink()
    (tmp_path / "tokenizer.json").write_text(json.dumps(value), "utf-8")
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.encode("a <mask>") == trained["bpe", False].encode("a [MASK]")
    assert len(tokenizer.encode("one two three four five")) >= 5  # the truncation stored in the file is ignored
    (tmp_path / "tokenizer.json").write_text(
        json.dumps(value).replace("<mask>", "<hole>").replace("<s>", "<start>"), "utf-8"
    )
    with pytest.raises(UserError, match=r"no cls \(\[CLS\] or <s>\), no mask"):
        Tokenizer.load(tmp_path)
    named = {"mask_token": {"content": "<hole>", "lstrip": True}, "cls_token": "<start>"}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(named))
    assert Tokenizer.load(tmp_path).encode("<start> <hole>") == [2, 4]


def test_unreadable_tokenizers_raise(tmp_path):
    with pytest.raises(UserError, match="no such file or folder"):
        Tokenizer.load(tmp_path / "nowhere")
    with pytest.raises(UserError, match="no tokenizer in"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match="cannot read the tokenizer"):
        Tokenizer.load(tmp_path)
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    with pytest.raises(UserError, match="no pad"):
        Tokenizer.load(tmp_path / "vocab.txt")


def test_hub_model_id_without_network_raises(tmp_path):
    script = (
        "from unmask.text.tokenizer import Tokenizer\nfrom unmask.errors import UserError\n"
        "try:\n    Tokenizer.load('someone/something')\nexcept UserError as error:\n    print(error)"
    )
    env = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    assert "someone/something is neither a local path nor available on the hub" in run.stdout
    assert "hf download someone/something" in run.stdout


def test_lone_surrogate_is_replaced(trained):
    tokenizer = trained["byte", False]
    assert tokenizer.encode("a\ud800b") == tokenizer.encode("a\ufffdb")
    assert train("char", ["ab\ud800 " * 9]).size == 5 + 4


def test_report(trained):
    report = trained["wordpiece", True].report(["the 学校 the☃", "the"])
    assert report["words"] == 5
    assert report["tokens"] == 5  # "the☃" is one word for BERT, and unknown
    assert report["unk_rate"] == 1 / 5
    assert report["tokens_per_word"] == 1
    assert report["characters_per_token"] == (len("the 学校 the☃") + 3) / 5
    assert report["vocabulary_used"] == 3 / (2000 - 7)
    assert len(report["longest"]) == 10
    assert trained["byte", True].report(iter(["é"] * 1500))["tokens"] == 1500


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_forked_processes_print_no_warnings_and_agree():
    script = (
        "import multiprocessing, os\nfrom unmask.text.tokenizer import Tokenizer\n"
        "from unmask.recipe import TokenizerRecipe\n"
        "t = Tokenizer.train(['a b c d'] * 9, TokenizerRecipe(type='char'))\n"
        "t.encode_batch(['a b'] * 999)\n"
        "def work(_): return [e.ids for e in t.encode_batch(['a b', 'c d'] * 500)]\n"
        "with multiprocessing.get_context('fork').Pool(2) as pool: results = pool.map(work, range(4))\n"
        "assert all(r == work(0) for r in results)\n"
        "assert 'TOKENIZERS_PARALLELISM' not in os.environ\n"
    )
    env = {name: value for name, value in os.environ.items() if name != "TOKENIZERS_PARALLELISM"}
    run = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
