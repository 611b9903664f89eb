"""Generation: equal to transformers, with and without a KV cache, counter-based sampling, and the text interface."""

import itertools
import json

import pytest
import torch
import transformers
from near import near

from unmask.errors import UserError
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.generate import MAX_TOKENS_IN_MEMORY, _group_prompts, generate
from unmask.model.generation import GenerationConfig
from unmask.model.model import Model

VOCAB, PAD, BOS, END = 20, 1, 0, 2
FAMILIES = ("gpt2-mini", "t5-mini", "t5-v1.1-mini", "bart-mini")
ENCODER = ("t5-mini", "t5-v1.1-mini", "bart-mini")


def tiny(name, seed=0, heads=("lm",), **changes):
    """A model with large random weights, so that generated texts differ in content and length."""
    shape = {"layers": 2, "hidden": 32, "heads": 4, "vocab_size": VOCAB, "pad_id": PAD, "cls_id": BOS, "sep_id": END}
    full = preset(name)
    shape |= {"decoder_layers": 2} if full.decoder_layers else {}
    shape |= {"head_size": 8} if full.head_size else {}
    shape |= {"intermediate": 64} if full.intermediate else {}
    if full.positions != "relative":
        shape["max_positions"] = 64
    model = Model(preset(name, **(shape | changes)), heads).init(seed).eval()
    generator = torch.Generator().manual_seed(seed + 100)
    with torch.no_grad():
        for key, value in model.named_parameters():
            if value.ndim == 2:
                value.normal_(0.0, 0.5 if "embeddings" in key or "decoder.weight" in key else 0.3, generator=generator)
        for matrix in (model.embedding, getattr(model.heads[heads[0]].decoder, "weight", model.embedding)):
            matrix[END] *= 1.6  # makes the end token likely from time to time
    return model


def prompts(lengths=(9, 4, 9, 1), seed=5):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, VOCAB, (n,), generator=generator).tolist() for n in lengths]


def generate_reference(folder, rows, encoder, **settings):
    """Return the new tokens of transformers. Encoder-decoders get one padded batch, causal models one batch per length (padding would
    count as a repeated token there)."""
    kind = json.loads((folder / "config.json").read_text())["architectures"][0]
    model = getattr(transformers, kind).from_pretrained(folder).eval()
    settings = {"pad_token_id": PAD} | settings
    generated = [[] for _ in rows]
    for length in (0,) if encoder else set(map(len, rows)):
        group = [i for i, row in enumerate(rows) if length in (0, len(row))]
        width = max(len(rows[i]) for i in group)
        ids = torch.tensor([rows[i] + [PAD] * (width - len(rows[i])) for i in group])
        mask = torch.tensor([[1] * len(rows[i]) + [0] * (width - len(rows[i])) for i in group])
        new = model.generate(ids, attention_mask=mask, **settings)[:, 1 if encoder else width :].tolist()
        for i, row in zip(group, new, strict=True):
            generated[i] = row
    return [row[: row.index(END) + 1] if END in row else row for row in generated]


SETTINGS = [
    {"num_beams": 1},
    {"num_beams": 3},
    {"num_beams": 4, "length_penalty": 2.0},
    {"num_beams": 4, "length_penalty": 0.5, "early_stopping": True},
    {"num_beams": 3, "length_penalty": -1.0, "early_stopping": "never"},
    {"num_beams": 3, "length_penalty": 1.5, "early_stopping": "never"},
    {"num_beams": 1, "no_repeat_ngram_size": 2, "repetition_penalty": 1.7},
    {"num_beams": 3, "no_repeat_ngram_size": 3, "min_new_tokens": 7, "repetition_penalty": 1.2},
    {"num_beams": 2, "min_length": 9, "forced_eos_token_id": END},
]


@pytest.mark.parametrize("name", FAMILIES)
def test_generation_equals_transformers(name, tmp_path):
    """Greedy and beam search with many settings; some texts end with the end token, others at the maximum length."""
    lengths = set()
    for seed in (3, 4):
        rows = prompts(seed=seed)
        hf.save(tiny(name, seed), tmp_path / str(seed))
        model = hf.load(tmp_path / str(seed)).model
        for settings in SETTINGS if seed == 3 else SETTINGS[:2]:
            expected = generate_reference(tmp_path / str(seed), rows, name in ENCODER, max_new_tokens=12, **settings)
            generated = generate(model, rows, max_new_tokens=12, **settings)
            assert generated == expected, (seed, settings)
            lengths |= {len(new) for new in generated}
    assert len(lengths) > 2
    assert 12 in lengths


def test_bart_forced_tokens_equal_transformers(tmp_path):
    model, rows = tiny("bart-mini"), prompts()
    hf.save(model, tmp_path)
    for beams in (1, 3):
        settings = {"num_beams": beams, "max_new_tokens": 6, "forced_bos_token_id": BOS}
        generated = generate(hf.load(tmp_path).model, rows, **settings)
        assert generated == generate_reference(tmp_path, rows, True, **settings)
        assert all(
            new[0] == BOS and new[-1] == END for new in generated
        )  # the saved generation config forces the end token
    generated = generate(model, rows, max_new_tokens=6)
    assert any(new[-1] != END for new in generated)  # a model without a generation config forces nothing


@pytest.mark.parametrize(("name", "beams"), itertools.product(FAMILIES, (1, 3)))
def test_generation_with_and_without_cache_is_equal(name, beams):
    model, rows = tiny(name, seed=1), prompts()
    settings = {"max_new_tokens": 15, "num_beams": beams, "no_repeat_ngram_size": 4}
    assert generate(model, rows, **settings) == generate(model, rows, cache=False, **settings)


@pytest.mark.parametrize("name", ["gpt-mini", *FAMILIES])
@pytest.mark.parametrize("settings", [{}, {"num_beams": 3}, {"do_sample": True, "seed": 4}])
def test_generation_is_independent_of_the_batch(name, settings):
    model, rows = tiny(name), prompts()
    together = generate(model, rows, max_new_tokens=8, **settings)
    alone = [generate(model, [[5]] * i + [row], max_new_tokens=8, **settings)[i] for i, row in enumerate(rows)]
    assert together == alone


def test_generation_config_is_loaded_applied_and_saved(tmp_path):
    """generation_config.json is loaded, applied, overridden by arguments, and saved unchanged."""
    model, rows = tiny("gpt2-mini"), prompts()
    hf.save(model, tmp_path)
    file = tmp_path / "generation_config.json"
    assert json.loads(file.read_text()) == {"bos_token_id": BOS, "eos_token_id": END, "pad_token_id": PAD}
    settings = {
        "num_beams": 3,
        "max_new_tokens": 5,
        "eos_token_id": [END, 7],
        "length_penalty": 0.3,
        "pad_token_id": PAD,
    }
    file.write_text(json.dumps(settings))
    loaded = hf.load(tmp_path).model
    generated = generate(loaded, rows)
    assert generated == generate(model, rows, **settings)
    assert generated != generate(model, rows, max_new_tokens=5)
    assert max(map(len, generate(loaded, rows, max_new_tokens=2))) == 2
    hf.save(loaded, tmp_path / "again")
    assert json.loads((tmp_path / "again/generation_config.json").read_text()) == settings
    file.unlink()  # an old directory: the keys are in config.json
    raw = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(raw | settings))
    assert generate(hf.load(tmp_path).model, rows) == generated
    file.write_text(json.dumps({"bad_words_ids": [[3]]}))
    with pytest.raises(UserError, match="bad_words_ids"):
        generate(hf.load(tmp_path).model, rows)


def test_same_seed_samples_the_same_text():
    model, rows = tiny("gpt2-mini"), prompts((5, 5, 5))
    sampling = {"do_sample": True, "max_new_tokens": 12, "temperature": 2.0}
    torch.manual_seed(1)
    first = generate(model, rows, seed=1, **sampling)
    torch.manual_seed(2)
    assert first == generate(model, rows, seed=1, **sampling)
    assert first == generate(model, rows, seed=1, cache=False, **sampling)
    assert first != generate(model, rows, seed=2, **sampling)
    same = generate(model, [rows[0]] * 3, seed=1, **sampling)
    assert len({tuple(new) for new in same}) > 1  # equal prompts are sampled independently
    (uniform,) = generate(model, [rows[0]], **(sampling | {"temperature": 1e6, "min_new_tokens": 12}))
    assert len(set(uniform)) > 4  # and so are the steps
    assert generate(model, rows, **(sampling | {"temperature": 1e-4})) == generate(model, rows, max_new_tokens=12)


def test_sampled_tokens_follow_the_model_distribution():
    model, row = tiny("gpt2-mini", seed=3), prompts((6,))
    with torch.no_grad():
        logits = model.logits("lm", model(torch.tensor(row))[:, -1])[0] / 1.5
    for settings in ({}, {"top_k": 4}, {"top_p": 0.6}):
        filtered = logits.clone()
        if "top_k" in settings:
            filtered[filtered < filtered.topk(4).values[-1]] = -torch.inf
        if "top_p" in settings:
            filtered = transformers.TopPLogitsWarper(0.6)(None, filtered[None])[0]
        expected = filtered.softmax(-1)
        generated = generate(model, row * 2000, do_sample=True, temperature=1.5, max_new_tokens=1, **settings)
        frequencies = torch.bincount(torch.tensor(generated)[:, 0], minlength=VOCAB) / 2000
        assert (frequencies - expected).abs().max() < 4.5 * (0.25 / 2000) ** 0.5  # 4.5 standard errors
        assert not frequencies[expected == 0].any()


@pytest.mark.parametrize("head", ["mlm", "lm"])
@pytest.mark.parametrize("name", ["bert-tiny", "modernbert-mini"])
def test_prefix_lm_encoder_generates_with_a_prefix_mask(name, head):
    """Each new token is the argmax of a forward pass with the prefix mask at the last token."""
    from unmask.batch import Batch

    model = Model(preset(name, vocab_size=60, max_positions=32, logit_position="next"), [head]).init(3)
    rows = [[5, 6, 7], [8, 9]]
    generated = generate(model, rows, max_new_tokens=5)
    assert [len(new) for new in generated] == [5, 5]
    for row, new in zip(rows, generated, strict=True):
        ids = torch.tensor([row + new[:-1]])
        with torch.no_grad():
            hidden = model.eval().encode(Batch(ids, prefix_lengths=torch.tensor([len(row)])))
        assert model.logits(head, hidden[0, len(row) - 1 :]).argmax(-1).tolist() == new
    assert len(generate(model, rows, max_new_tokens=4, num_beams=2)[0]) == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_new_token": 3}, "did you mean max_new_tokens"),
        ({"num_beams": 0}, "num_beams 0"),
        ({"temperature": 0.0, "do_sample": True}, "temperature"),
        ({"do_sample": True, "num_beams": 2}, "do_sample with 2 beams"),
        ({"max_new_tokens": 100}, "at most 64"),
        ({"top_p": 1.5}, "top_p"),
    ],
)
def test_invalid_settings_raise(settings, message):
    with pytest.raises(UserError, match=message):
        generate(tiny("gpt2-mini"), [[5]], **settings)


def test_models_that_cannot_generate_raise():
    with pytest.raises(UserError, match="cannot continue"):
        generate(Model(preset("bert-tiny", vocab_size=60), ["pooler"]), [[5]])
    with pytest.raises(UserError, match="trained to fill masks") as caught:  # it would generate noise
        generate(Model(preset("bert-tiny", vocab_size=60), ["mlm"]), [[5]])
    assert all(word in str(caught.value) for word in ("fill", "clm", "prefix", "hybrid"))
    with pytest.raises(UserError, match="an empty prompt"):
        generate(tiny("gpt2-mini"), [[]])
    assert generate(tiny("gpt2-mini"), []) == []


@pytest.mark.parametrize("decoder", [True, False])
@pytest.mark.parametrize("beams", [1, 4])
def test_prompt_groups_account_for_new_tokens(decoder, beams):
    """The cache of 1,000 one-token prompts is dominated by the generated tokens."""
    config = GenerationConfig(max_new_tokens=100, num_beams=beams)
    groups = _group_prompts([1] * 1000, config, decoder)
    assert sorted(i for group in groups for i in group) == list(range(1000))
    assert MAX_TOKENS_IN_MEMORY // 2 < len(groups[0]) * beams * 101 <= MAX_TOKENS_IN_MEMORY
    assert max(map(len, groups)) == len(groups[0])


def test_max_positions_limit_the_default_length():
    model = tiny("gpt2-mini", sep_id=None)
    model.generation = {"max_length": 500}
    assert len(generate(model, [[5] * 10])[0]) == 54
    assert GenerationConfig.from_settings({"max_new_tokens": 9}, max_length=30).max_row_length(10) == 30


# ---------------------------------------------------------------------------------------------------- text interface


WORDS = ["the cat sat on the mat. the dog sat on the log.", "a cat and a dog"]


@pytest.fixture(scope="module")
def tokenizer():
    from unmask.recipe import TokenizerRecipe
    from unmask.text.tokenizer import Tokenizer

    return Tokenizer.train(WORDS, TokenizerRecipe(type="bpe", vocab_size=272, lowercase=False))


def predictor(name, tokenizer, heads=("lm",), **changes):
    from unmask.inference.predictor import Predictor

    ids = {"pad_id": tokenizer.pad, "cls_id": tokenizer.cls, "sep_id": tokenizer.sep}
    return Predictor(tiny(name, 1, heads, vocab_size=tokenizer.size, **(ids | changes)), tokenizer, "cpu")


def test_causal_model_continues_the_text(tokenizer):
    p = predictor("gpt2-mini", tokenizer)
    one, *_ = many = p.generate(["the cat", "a dog sat on", ""], max_new_tokens=6)
    assert one == p.generate("the cat", max_new_tokens=6)
    assert [answer.text for answer in many] == ["the cat", "a dog sat on", ""]
    ids = [tokenizer.cls, *tokenizer.encode("the cat")]
    new = generate(p.model, [ids], max_new_tokens=6)[0]
    assert one.tokens == [tokenizer.token(i) for i in new]
    assert "the cat" + one.generated_text == tokenizer.decode(i for i in [*ids, *new] if not tokenizer.special[i])
    assert one.continues
    assert one.finish_reason == ("eos" if new[-1] == tokenizer.sep else "length")
    assert set(one.as_dict()) == {"text", "generated_text", "tokens", "finish_reason", "continues"}


@pytest.mark.parametrize("name", ["t5-mini", "bart-mini"])
def test_encoder_decoder_returns_only_the_new_text(name, tokenizer):
    p = predictor(name, tokenizer)
    one = p.generate("the cat", max_new_tokens=6, num_beams=2)
    ids = [tokenizer.cls, *tokenizer.encode("the cat"), tokenizer.sep]
    new = generate(p.model, [ids], max_new_tokens=6, num_beams=2)[0]
    assert one.tokens == [tokenizer.token(i) for i in new]
    assert one.generated_text == tokenizer.decode(i for i in new if not tokenizer.special[i]).strip()
    assert not one.continues


def test_unsupported_calls_raise(tokenizer):
    p = predictor("gpt2-mini", tokenizer, heads=("lm",))
    with pytest.raises(UserError, match="did you mean num_beams"):
        p.generate("the", num_beam=2)
    with pytest.raises(UserError, match="cannot fill a mask"):
        p.fill("the [MASK]")
    from unmask.inference.predictor import Predictor

    bare = Predictor(Model(preset("bert-tiny", vocab_size=400), ["pooler"]), tokenizer, "cpu")
    with pytest.raises(UserError, match="cannot continue a text"):
        bare.generate("the cat")


@pytest.mark.parametrize("name", ["gpt-mini", "gpt2-mini"])
def test_causal_score_equals_transformers_loss(name, tokenizer, tmp_path):
    p = predictor(name, tokenizer)
    hf.save(p.model, tmp_path)
    kind = json.loads((tmp_path / "config.json").read_text())["architectures"][0]
    reference = getattr(transformers, kind).from_pretrained(tmp_path).eval()
    texts = ["the cat sat on the mat", "a dog"]
    for text, score in zip(texts, p.score(texts), strict=True):
        ids = torch.tensor([[tokenizer.cls, *tokenizer.encode(text)]])
        with torch.no_grad():
            loss = reference(input_ids=ids, labels=ids).loss.item()
        count = len(score.per_token)
        assert count == ids.shape[1] - 1
        assert -score.total / count == near(loss, 1e-5)
        assert score.perplexity == pytest.approx(torch.tensor(loss).exp().item(), rel=1e-4)
        assert "".join(token.token for token in score.per_token) == text
        assert not score.pseudo


def test_generate_command(tokenizer, tmp_path):
    from typer.testing import CliRunner

    from unmask.cli import app
    from unmask.console import visible

    p = predictor("gpt2-mini", tokenizer)
    hf.save(p.model, tmp_path, tokenizer)
    flags = ["--max-new-tokens", "5", "--do-sample", "--seed", "3", "--top-k", "9", "--temperature", "1.3"]
    run = CliRunner().invoke(app, ["generate", str(tmp_path), "the cat", "a", *flags, "--json"])
    assert run.exit_code == 0, run.output
    settings = {"max_new_tokens": 5, "do_sample": True, "seed": 3, "top_k": 9, "temperature": 1.3}
    expected = p.generate(["the cat", "a"], **settings)
    assert json.loads(run.output) == [answer.as_dict() for answer in expected]
    run = CliRunner().invoke(app, ["generate", str(tmp_path), "the cat", *flags])
    assert run.output.rstrip("\n") == visible(
        "the cat" + expected[0].generated_text, "\n\t"
    )  # a random model generates control characters
    run = CliRunner().invoke(app, ["generate", str(tmp_path), "the cat", "--num-beams", "0"])
    assert run.exit_code == 2
