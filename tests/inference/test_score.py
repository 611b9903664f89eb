"""Scores within words, of long texts, and of minimal pairs, compared with plain loops over transformers."""

import json
import math

import pytest
import torch
from inference.tiny_models import logits_of, make_folder, train
from near import near
from scipy.stats import binomtest
from transformers import AutoTokenizer, BertForMaskedLM, ModernBertForMaskedLM
from typer.testing import CliRunner

from unmask.cli import app
from unmask.errors import UserError
from unmask.inference.pairs import accuracy_interval
from unmask.inference.predictor import Predictor, load
from unmask.inference.scoring import word_ends
from unmask.model.config import preset
from unmask.model.model import Model

TEXTS = ["The presidents spoke about the lakes.", "北京是中国的首都", "unitedness of congresses"]
PAIRS = [
    {"sentence_good": "the states were united", "sentence_bad": "the states was united", "UID": "agreement"},
    {"sentence_good": "she was playing", "sentence_bad": "she were playing", "UID": "agreement"},
    {"sentence_good": "we played at the lakes", "sentence_bad": "we played the at lakes", "UID": "order"},
]


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("bert"), train(), BertForMaskedLM)


@pytest.mark.parametrize("architecture", [BertForMaskedLM, ModernBertForMaskedLM])
def test_within_word_score_equals_a_loop_over_transformers(tmp_path, architecture):
    """Equal to PLL_metric="within_word_l2r" of minicons: later tokens of the same word, by word_ids of transformers, are masked too."""
    folder = make_folder(tmp_path, train(), architecture)
    predictor, theirs, differs = load(folder), AutoTokenizer.from_pretrained(folder), 0
    both = zip(predictor.score(TEXTS, method="within-word"), predictor.score(TEXTS), strict=True)
    for text, (score, plain) in zip(TEXTS, both, strict=True):
        encoded = theirs(text)
        ids, words, expected = encoded["input_ids"], encoded.word_ids(), []
        for i in range(1, len(ids) - 1):
            row = [theirs.mask_token_id if words[j] == words[i] and j >= i else id for j, id in enumerate(ids)]
            expected.append(float(logits_of(folder, row)[i].log_softmax(-1)[ids[i]]))
        assert [t.logprob for t in score.per_token] == near(expected, 1e-5)
        assert score.total == near(sum(expected), 1e-4)
        assert (score.method, score.pseudo, plain.method) == ("within-word", True, "pll")
        differs += abs(score.total - plain.total) > 1e-3
    assert differs  # otherwise unmasked tokens would pass


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "char", "byte"])
def test_word_boundaries_are_detected(kind):
    text = "the lakes, 北京 qz"
    (encoding,) = train(kind).encode_batch([text])
    ends = word_ends(encoding, text)
    assert all(i < end <= len(ends) for i, end in enumerate(ends))
    assert all(ends[i] in (i + 1, ends[i + 1]) for i in range(len(ends) - 1))
    last = encoding.offsets.index(next(o for o in encoding.offsets if text[slice(*o)].endswith("s")))  # of "lakes"
    assert ends[last] == last + 1
    if kind != "wordpiece":  # wordpiece has one or two tokens for "lakes"; the others split it further
        first = next(i for i, (a, b) in enumerate(encoding.offsets) if a <= 4 < b and text[a:b].strip())
        assert ends[first] == last + 1


def test_long_text_is_scored_in_windows_around_each_token(bert):
    predictor, text = load(bert), " ".join(["the lakes and she was playing"] * 20)
    t = predictor.tokenizer
    with pytest.raises(UserError, match="the model reads 64"):
        predictor.score(text)
    score = predictor.score(text, overflow="window")
    ids = t.encode(text)
    assert [k.id for k in score.per_token] == ids
    assert len(ids) > 128
    for i in (0, 1, 40, 90, len(ids) - 1):
        start = min(max(0, (2 * i + 1 - 62) // 2), len(ids) - 62)
        row = [t.cls, *ids[start : start + 62], t.sep]
        row[i - start + 1] = t.mask
        expected = float(logits_of(bert, row)[i - start + 1].log_softmax(-1)[ids[i]])
        assert score.per_token[i].logprob == near(expected, 1e-5)


def test_long_text_of_a_causal_model_is_scored_with_half_a_window_of_context():
    tokenizer = train("bpe")
    changes = {"hidden": 32, "heads": 2, "layers": 2, "max_positions": 32, "initializer_range": 0.5}
    model = Model(preset("gpt2-mini", vocab_size=tokenizer.size, **changes), ["lm"]).init(0).eval()
    predictor = Predictor(model, tokenizer, "cpu")
    text = " ".join(["the lakes and she was playing"] * 6)
    ids = tokenizer.encode(text)
    score = predictor.score(text, overflow="window")
    assert (len(score.per_token), score.method, score.pseudo) == (len(ids), "left-to-right", False)
    assert len(ids) > 64
    first = tokenizer.sep if tokenizer.cls is None else tokenizer.cls
    for i in (0, 5, 29, 30, 31, 50, len(ids) - 1):
        start = 0 if i < 30 else 15 * ((i - 15) // 15)  # windows of 30 tokens, of which 15 are new
        with torch.no_grad():
            hidden = model(torch.tensor([[first, *ids[start:i]]]))[0, -1:]
            expected = float(model.logits("lm", hidden).log_softmax(-1)[0, ids[i]])
        assert score.per_token[i].logprob == near(expected, 1e-4), i


# ------------------------------------------------------------------------------------------------ minimal pairs


def test_minimal_pair_is_correct_if_the_good_sentence_is_more_likely(bert, tmp_path):
    predictor = load(bert)
    result = predictor.minimal_pairs(PAIRS)
    for row, pair in zip(PAIRS, result.pairs, strict=True):
        good, bad = (predictor.score(row[key]).total for key in ("sentence_good", "sentence_bad"))
        assert (pair.good, pair.bad) == (row["sentence_good"], row["sentence_bad"])
        assert (pair.good_score, pair.bad_score) == near((good, bad), 1e-4)
        assert pair.right == (good > bad)
    right = [pair.right for pair in result.pairs]
    assert result.accuracy == sum(right) / 3 and result.count == 3
    assert {name: (s.accuracy, s.count) for name, s in result.by.items()} == {
        "agreement": (sum(right[:2]) / 2, 2),
        "order": (float(right[2]), 1),
    }
    swapped = [{"sentence_good": r["sentence_bad"], "sentence_bad": r["sentence_good"]} for r in PAIRS]
    assert predictor.minimal_pairs(swapped).accuracy == pytest.approx(1 - result.accuracy)
    same = predictor.minimal_pairs([{"sentence_good": "the lakes", "sentence_bad": "the lakes"}])
    assert same.accuracy == 0 and same.by == {}

    (tmp_path / "blimp").mkdir()
    for number, rows in enumerate((PAIRS[:2], PAIRS[2:])):
        lines = "".join(json.dumps(r | {"linguistics_term": f"term {number}"}) + "\n" for r in rows)
        (tmp_path / "blimp" / f"{number}.jsonl").write_text(lines)
    folder = predictor.minimal_pairs(tmp_path / "blimp", method="within-word")
    assert folder.count == 3 and sorted(folder.by) == ["term 0", "term 1"] and folder.method == "within-word"
    assert [p.good for p in folder.pairs] == [p.good for p in result.pairs]


def test_accuracy_interval_equals_wilson():
    for right, n in ((8, 10), (1, 3), (500, 1000), (7, 7)):
        theirs = binomtest(right, n).proportion_ci(method="wilson")
        interval = accuracy_interval([True] * right + [False] * (n - right)).interval
        assert interval == near((theirs.low, theirs.high), 1e-3)


def test_minimal_pairs_command(bert, tmp_path):
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in PAIRS))
    shown = CliRunner().invoke(app, ["score", str(bert), "--minimal-pairs", str(file)])
    assert shown.exit_code == 0, shown.output
    assert "accuracy" in shown.output and "agreement" in shown.output and "3 pairs" in shown.output
    out = CliRunner().invoke(
        app, ["score", str(bert), "--minimal-pairs", str(file), "--method", "within-word", "--json"]
    )
    result = json.loads(out.stdout)
    assert (result["count"], result["method"], len(result["pairs"])) == (3, "within-word", 3)
    assert result["accuracy"] == load(bert).minimal_pairs(file, "within-word").accuracy


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "no pairs"),
        ([{"good": "a"}], "no column for 'bad'"),
        ([{"sentence_good": "a", "sentence_bad": ""}], "no bad"),
        (["a"], "row 1: 'a' is str"),
    ],
)
def test_invalid_pairs_raise(bert, rows, message):
    with pytest.raises(UserError, match=message):
        load(bert).minimal_pairs(rows)


def test_invalid_arguments_raise(bert, tmp_path):
    with pytest.raises(UserError, match="method 'pl'"):
        load(bert).score("the", method="pl")
    with pytest.raises(UserError, match="no such file"):
        load(bert).minimal_pairs(tmp_path / "none.jsonl")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no files with pairs"):
        load(bert).minimal_pairs(tmp_path / "empty")
    for arguments in (["score", str(bert)], ["score", str(bert), "the", "--minimal-pairs", "x.jsonl"]):
        assert CliRunner().invoke(app, arguments).exit_code == 2


def test_perplexity_depends_on_the_method(bert):
    score = load(bert).score("the presidents", method="within-word")
    assert score.perplexity == pytest.approx(math.exp(-score.total / len(score.per_token)))


def test_score_command_scores_the_lines_of_a_file(bert, tmp_path):
    """Regression test: `unmask score MODEL text.txt` scored the file name."""
    lines, table = tmp_path / "text.txt", tmp_path / "table.csv"
    lines.write_text("\n".join(TEXTS) + "\n\n", "utf-8")
    table.write_text("review\n" + "".join(f'"{text}"\n' for text in TEXTS), "utf-8")

    def scored(*words, code=0):
        done = CliRunner().invoke(app, ["score", str(bert), *words, "--json"])
        assert done.exit_code == code, done.output
        return json.loads(done.stdout)

    expected = scored(*TEXTS)
    assert [score["text"] for score in expected] == TEXTS
    assert scored(str(lines)) == expected
    assert scored(str(table)) == scored(str(table), "--text-column", "review") == expected
    table.write_text("编号,评论\n" + "".join(f'{n},"{text}"\n' for n, text in enumerate(TEXTS)), "utf-8")
    assert scored(str(table)) == expected
    assert scored("missing.txt", code=2)["error"] == "missing.txt: no such file"
