"""Vocabulary extension: existing ids and tokenizations stay, new embedding rows come from their subwords, and
transformers loads the result."""

import json
from collections import Counter
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

import unmask
from unmask.model import hf
from unmask.model.config import change, preset
from unmask.model.model import Model
from unmask.model.resize import rebuild_with
from unmask.recipe import TokenizerRecipe
from unmask.text.extend import NewWord, add_words, added_token_subwords, extend_vocabulary, pre_tokenize
from unmask.text.tokenizer import Tokenizer

GENERAL = ["The list is sorted in place, and the cat sat on the mat in the house of the old man. " * 4] * 30
DOMAIN = ["Metformin lowers glucose; the patient with cardiomyopathy takes Metformin (cardiomyopathy) daily. " * 2] * 40
ALPHABET = "a b c d e f g h i j k l m n o p q r s t u v w x y z abcdefghijklmnopqrstuvwxyz ( ) ; 1 2 3 !"
SMALL = {"hidden": 32, "layers": 1, "heads": 2, "intermediate": 64, "max_positions": 64}


def trained(kind: str, **settings) -> Tokenizer:
    return Tokenizer.train(GENERAL + [ALPHABET] * 2, TokenizerRecipe(type=kind, **settings))


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_new_words_are_single_tokens_and_others_are_unchanged(kind: str) -> None:
    old = trained(kind, special_tokens=["<user>"])
    new, report = extend_vocabulary(old, DOMAIN, 3)
    assert 0 < report["added"] <= 3 and new.size == old.size + report["added"]
    assert [new.token(i) for i in range(old.size)] == [old.token(i) for i in range(old.size)]
    assert (new.pad, new.unk, new.cls, new.sep, new.mask) == (old.pad, old.unk, old.cls, old.sep, old.mask)
    text = "the patient takes metformin; <user> the list [MASK]"
    assert new.size - 1 in {i for t in DOMAIN for i in new.encode(t)}
    assert any(i >= old.size for i in new.encode(text))
    assert new.decode(new.encode(text)) == old.decode(old.encode(text)), "text was lost"
    for plain in (*GENERAL[:2], "<user> the cat[MASK] sat, on THE mat!", "zebra 123 (fox)"):
        assert new.encode(plain) == old.encode(plain)
    before, after = report["tokens_per_word"]
    assert after < before
    again, same = extend_vocabulary(old, DOMAIN, 3)
    assert again.fingerprint() == new.fingerprint() and same == report


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_words_containing_new_ones_are_tokenized_as_before(kind: str) -> None:
    """A new word is not matched inside a longer word, except at its start (where WordPiece uses the longest match)."""
    old = trained(kind)
    new, _ = extend_vocabulary(old, DOMAIN, 5)
    entries = {new.token(i) for i in range(old.size, new.size)}
    others = "submetformin premetformins glucos etformin ametformin unpatient daily's"
    for word in Counter(pre_tokenize(old, others)):
        assert not any(word.startswith(entry) for entry in entries)
        assert [t.id for t in new.backend.model.tokenize(word)] == [t.id for t in old.backend.model.tokenize(word)]


def test_new_words_are_ranked_by_tokens_saved() -> None:
    old = trained("wordpiece")
    _, report = extend_vocabulary(old, ["glucose glucose glucose metformin metformin metformin metformin " * 5] * 20, 2)
    saved = [w["saved"] for w in report["words"]]
    assert [w["word"] for w in report["words"]] == ["metformin", "glucose"] and saved == sorted(saved, reverse=True)


def test_word_that_increases_tokens_elsewhere_is_not_added() -> None:
    """`abcd` saves one token; but `abcdefgha` = ab ##cdefgh ##a would become abcd ##e ##f ##g ##h ##a."""
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", *(f"##{c}" for c in "abcdefgh"), "ab"]
    vocabulary += ["##cd", "##cdefgh"]
    import tokenizers
    from tokenizers import models, pre_tokenizers

    backend = tokenizers.Tokenizer(models.WordPiece({t: i for i, t in enumerate(vocabulary)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    old = Tokenizer(backend)
    rare = " ".join(f"abcdefgh{c}" for c in "abcdefgh")  # each too rare for its own entry
    extended, _ = extend_vocabulary(old, ["abcd"] * 22, 5)
    unchanged, report = extend_vocabulary(old, ["abcd"] * 22 + [rare] * 4, 5)
    assert extended.token(extended.size - 1) == "abcd"
    assert unchanged.size == old.size and report["added"] == 0


def test_character_and_byte_tokenizers_raise() -> None:
    for kind in ("char", "byte"):
        with pytest.raises(unmask.UserError, match="has no words"):
            extend_vocabulary(trained(kind), DOMAIN, 3)


def test_bpe_with_unreachable_entries_raises() -> None:
    old = trained("bpe")
    raw = json.loads(old.backend.to_str())
    raw["model"]["vocab"]["zzz"] = old.size
    import tokenizers

    with pytest.raises(unmask.UserError, match="cannot be produced by its merges"):
        extend_vocabulary(Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(raw))), DOMAIN, 3)


def test_added_tokens_after_the_vocabulary_keep_their_ids() -> None:
    """A tokenizer whose special tokens follow the vocabulary, as in many fine-tuned models."""
    for kind in ("wordpiece", "bpe", "unigram"):
        old = trained(kind)
        old.backend.add_tokens(["<entity>"])
        old = Tokenizer(old.backend)
        new, _ = extend_vocabulary(old, DOMAIN, 3)
        assert new.backend.token_to_id("<entity>") == old.size - 1
        assert new.encode("the <entity> sat") == old.encode("the <entity> sat")


@pytest.mark.parametrize("tie", [True, False])
def test_new_rows_are_the_mean_of_their_subwords(tie: bool) -> None:
    config = preset(
        "bert-tiny", **SMALL, vocab_size=32, tie=tie
    )  # 32 equals hidden too, so rows and columns could be confused
    model = Model(config, ["mlm"]).init(0)
    torch.nn.init.normal_(model.heads["mlm"].bias)
    extended, missing = rebuild_with(model, config, ["mlm"], {32: [5, 7], 33: [1, 2, 3]})
    assert not missing and extended.config.vocab_size == 34
    old, new = model.state_dict(), extended.state_dict()
    for name in ("encoder.embeddings.tokens.weight", "heads.mlm.bias", *([] if tie else ["heads.mlm.decoder.weight"])):
        assert torch.equal(new[name][:32], old[name])
        assert torch.equal(new[name][32], old[name][[5, 7]].mean(0)) and torch.equal(
            new[name][33], old[name][1:4].mean(0)
        )
    others = [name for name in old if old[name].shape == new[name].shape]
    assert len(others) >= 15 and all(torch.equal(old[name], new[name]) for name in others)


def test_padding_rows_are_used_for_new_words() -> None:
    """A model may have more rows than its tokenizer has tokens: ModernBERT pads to a multiple of 64."""
    config = preset("modernbert-mini", **SMALL, vocab_size=64)
    model = Model(config).init(0)
    extended, _ = rebuild_with(model, config, ["mlm"], {60: [5, 7]})
    assert extended.config.vocab_size == 64
    assert torch.equal(extended.embedding[60], model.embedding[[5, 7]].mean(0))
    assert torch.equal(extended.embedding[61], model.embedding[61])


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("domain")
    (folder / "general.txt").write_text(
        "\n\n".join(f"{t} Number {n}." for n, t in enumerate([*GENERAL, *[ALPHABET] * 9]))
    )
    (folder / "domain.txt").write_text("\n\n".join(f"{t} Number {n}." for n, t in enumerate(DOMAIN)))
    return folder


@pytest.fixture(scope="module")
def general(texts: Path) -> Path:
    run = unmask.pretrain(
        texts / "general.txt", preset="bert-tiny", objective="mlm", steps=2, batch_size=4, max_length=32,
        recipe={"model": SMALL}, out=texts / "general",
    )  # fmt: skip
    return run.model


def test_continued_model_with_new_words_loads_in_transformers_with_equal_ids(
    general: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    from unmask.console import Console

    short = {"init_from": str(general), "extend_vocab": 4, "steps": 3, "batch_size": 4, "max_length": 32}
    expected = unmask.dry_run(texts / "domain.txt", **short)
    assert expected["extension"]["added"] == 4
    run = unmask.pretrain(texts / "domain.txt", out=tmp_path / "run", console=Console(), **short)
    output = capsys.readouterr().err
    assert "4 words added" in output and "tokens per word on validation text" in output and "most useful: " in output
    theirs, loading_info = AutoModelForMaskedLM.from_pretrained(run.model, output_loading_info=True)
    assert not loading_info["missing_keys"] and not loading_info["unexpected_keys"]
    ours, old = Tokenizer.load(run.model), Tokenizer.load(general)
    assert theirs.config.vocab_size == ours.size == old.size + 4
    opened = AutoTokenizer.from_pretrained(run.model)
    for text in (DOMAIN[0], GENERAL[0], "METFORMIN, cardiomyopathy!"):
        assert opened(text, add_special_tokens=False)["input_ids"] == ours.encode(text)
    assert run.events()[0]["event"] == "eval" and run.events()[0]["step"] == 0
    again = unmask.pretrain(texts / "domain.txt", out=tmp_path / "again", **short)
    assert (again.model / "model.safetensors").read_bytes() == (run.model / "model.safetensors").read_bytes()


def test_extended_model_has_the_same_initial_loss_on_old_text(general: Path) -> None:
    old = hf.load(general).model
    tokenizer = Tokenizer.load(general)
    new, _ = extend_vocabulary(tokenizer, DOMAIN, 4)
    extended, _ = rebuild_with(old, old.config, ["mlm"], added_token_subwords(tokenizer, new))
    ids = torch.tensor([tokenizer.encode(GENERAL[0])[:30]])
    assert torch.equal(old(ids), extended(ids))


def test_run_killed_before_its_first_checkpoint_restarts_with_the_same_words(
    general: Path, texts: Path, tmp_path: Path
) -> None:
    run = unmask.pretrain(
        texts / "domain.txt",
        init_from=str(general),
        extend_vocab=4,
        steps=2,
        batch_size=4,
        max_length=32,
        out=tmp_path / "run",
    )
    weights = (run.model / "model.safetensors").read_bytes()
    import shutil

    pruned = json.loads((run.path / "data.json").read_text())["store"]
    for path in (run.model, run.checkpoints, pruned):  # the store too: it is rebuilt with the new words
        shutil.rmtree(path)
    run.log.unlink()
    (run.path / "results.json").unlink()
    unmask.resume(run.path)
    assert (run.model / "model.safetensors").read_bytes() == weights


def test_unsupported_extensions_raise(general: Path, texts: Path, tmp_path: Path) -> None:
    with pytest.raises(unmask.UserError, match="needs --from"):
        unmask.pretrain(texts / "domain.txt", extend_vocab=4, steps=1, out=tmp_path / "a")
    store = unmask.prepare(texts / "domain.txt", tmp_path / "store", tokenizer=str(general))
    with pytest.raises(unmask.UserError, match="was already tokenized"):
        unmask.pretrain(store.path, init_from=str(general), extend_vocab=4, steps=1, max_length=32, out=tmp_path / "b")
    other = unmask.prepare(texts / "domain.txt", tmp_path / "other", vocab_size=100)
    with pytest.raises(unmask.UserError, match="different tokenizer"):
        unmask.pretrain(other.path, init_from=str(general), extend_vocab=4, steps=1, max_length=32, out=tmp_path / "c")


def test_added_subwords_of_an_unrelated_tokenizer_are_none() -> None:
    old = trained("wordpiece")
    assert added_token_subwords(old, trained("bpe")) is None
    extended = add_words(old, [NewWord("thecat", "thecat", (1,), 1)])
    subwords = added_token_subwords(old, extended)
    assert subwords and old.token(subwords[old.size][0]) == "the"


def test_config_changes_pass_through(general: Path) -> None:
    model = hf.load(general).model
    same, missing = rebuild_with(model, model.config, model.heads)
    assert same is model and not missing
    changed, missing = rebuild_with(model, change(model.config, dropout=0.3), ["mlm", "nsp"])
    assert changed.config.dropout == 0.3 and {name.split(".")[1] for name in missing} == {"pooler", "nsp"}
