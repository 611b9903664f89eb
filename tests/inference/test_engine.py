"""The seam between a Predictor and what computes: numpy in, numpy out, any number of rows, their order kept."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from inference.tiny_models import train
from near import gap

from unmask.batch import TOKENS_PER_FORWARD, Example, collate
from unmask.errors import UserError
from unmask.inference.engine import Engine
from unmask.inference.predictor import Predictor, load
from unmask.inference.progress import map_in_chunks, progress_callback
from unmask.inference.torch_engine import LOGIT_ROWS_PER_CHUNK, TorchEngine
from unmask.model.config import preset
from unmask.model.layers import MLP
from unmask.model.model import Model

TOKENIZER = train()
SHAPE = {"hidden": 32, "heads": 2, "layers": 2, "max_positions": 64, "initializer_range": 0.5}


@pytest.fixture(scope="module")
def engine() -> TorchEngine:
    config = preset("bert-tiny", vocab_size=TOKENIZER.size, labels=("a", "b", "c"), **SHAPE)
    return TorchEngine(Model(config, ["mlm", "nsp", "tag"]).init(0), "cpu")


def rows(count: int, seed: int = 0, targets: int = 3) -> list[Example]:
    rng = np.random.default_rng(seed)
    out = []
    for length in rng.integers(8, 60, count):
        ids = rng.integers(5, TOKENIZER.size, length)
        places = np.sort(rng.choice(length, targets, replace=False))
        out.append(Example(ids, labels={"mlm.positions": places, "mlm.targets": ids[places]}))
    return out


def logprobs(engine: TorchEngine, row: Example) -> torch.Tensor:
    """(T, V), one row, plainly."""
    with torch.no_grad():
        return engine.model.logits("mlm", engine.model(torch.from_numpy(row.input_ids)[None])[0]).log_softmax(-1)


def test_every_method_gives_each_row_its_own(engine: TorchEngine) -> None:
    some = rows(200)
    assert sum(map(len, some)) > TOKENS_PER_FORWARD  # several forward passes
    allowed = np.random.default_rng(1).random(TOKENIZER.size) < 0.5
    top, likely = engine.top_k("mlm", some, 4, allowed), engine.token_logprobs("mlm", some)
    hidden, nsp, tag = engine.hidden(some, 1), engine.logits("nsp", some), engine.logits("tag", some)
    with torch.no_grad():
        for i in (0, 7, 50, 199):
            row = some[i]
            known, places = logprobs(engine, row), row.labels["mlm.positions"]
            values, ids = known[places].masked_fill(~torch.from_numpy(allowed), -torch.inf).topk(4)
            np.testing.assert_array_equal(top[i][0], ids)
            assert gap(top[i][1], values) <= 5e-5
            assert gap(likely[i], known[places, row.input_ids[places]]) <= 5e-5
            states: list[torch.Tensor] = []
            engine.model.encoder(torch.from_numpy(row.input_ids)[None], states=states)
            assert gap(hidden[i], states[1][0]) <= 1e-5
            assert gap(nsp[i], engine.model.logits("nsp", states[-1])[0]) <= 1e-5
            assert tag[i].shape == (len(row), len(engine.config.labels))
    assert engine.top_k("mlm", [], 3) == [] and engine.hidden([]) == []


def test_several_targets_are_read_at_one_place_and_more_places_than_are_computed_at_once(engine: TorchEngine) -> None:
    some = rows(100, targets=7)
    assert LOGIT_ROWS_PER_CHUNK < 100 * 7
    for row in some:
        row.labels["mlm.positions"] = np.repeat(row.labels["mlm.positions"], 3)
        row.labels["mlm.targets"] = np.arange(5, 26)
    for row, found in zip(some, engine.token_logprobs("mlm", some), strict=True):
        known = logprobs(engine, row)
        assert gap(found, known[row.labels["mlm.positions"], row.labels["mlm.targets"]]) <= 5e-5
    wide = rows(100, targets=7)
    narrow = [engine.top_k("mlm", [row], 2)[0][0] for row in wide]
    for ids, expected in zip((ids for ids, _ in engine.top_k("mlm", wide, 2)), narrow, strict=True):
        np.testing.assert_array_equal(ids, expected)


@pytest.mark.parametrize(
    "name", ["bert-tiny", "modernbert-mini", "albert-mini", "t5-mini", "gpt2-mini", "electra-mini"]
)
def test_padding_is_not_computed_and_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    more = {"local_window": 8} if name == "modernbert-mini" else {}
    own = TorchEngine(Model(preset(name, vocab_size=TOKENIZER.size, **more), []).init(0), "cpu")
    lengths, widths = [60, 9, 31, 17], []
    some = [Example(np.random.default_rng(n).integers(5, TOKENIZER.size, n)) for n in lengths]
    real = MLP.forward
    monkeypatch.setattr(MLP, "forward", lambda self, x: widths.append(x.shape[:-1].numel()) or real(self, x))
    found = own.hidden(some)
    assert set(widths) == {sum(lengths)}
    batch = collate(some, 0)
    places = torch.tensor([60 * 1 + 3, 60 * 3])  # a token of the second row, the first of the last
    with torch.no_grad():
        chosen = own.model.encode(batch, places)
        own.model.encoder.unpad = False
        plain = own.model.encode(batch)
    assert widths[-1] == 4 * 60
    for row, states, length in zip(found, plain, lengths):
        assert gap(row, states[:length]) <= 2e-5
    assert gap(chosen, plain.flatten(0, 1)[places]) <= 2e-5


class Other:
    """An engine that is not torch's, as an exported graph's is: it answers by asking the real one."""

    kind = "onnx"

    def __init__(self, real: TorchEngine):
        self.real, self.config = real, real.config

    def __getattr__(self, name: str) -> Any:
        if name in (
            "heads",
            "generation",
            "forward_lock",
            "forward_rows",
            "top_k",
            "token_logprobs",
            "hidden",
            "logits",
            "start_generation",
        ):
            return getattr(self.real, name)
        raise AttributeError(name)


def test_a_predictor_asks_nothing_but_the_engine(engine: TorchEngine) -> None:
    other = Other(engine)
    assert isinstance(other, Engine)
    there, here = Predictor(other, TOKENIZER), Predictor(engine, TOKENIZER)
    text = "the [MASK] of the [MASK]"
    settings: dict[str, Any] = {"num_beams": 3, "max_subwords": 2}
    assert there.fill(text, **settings) == here.fill(text, **settings)
    assert there.score("the lakes", "within-word") == here.score("the lakes", "within-word")
    assert there.next_sentence("the", "lakes") == here.next_sentence("the", "lakes")
    np.testing.assert_array_equal(there.embed("the", "token", 1), here.embed("the", "token", 1))
    for ask in (there.attention, there.explain):
        with pytest.raises(UserError, match="backend onnx") as caught:
            ask("the [MASK]")
        assert 'backend="torch"' in caught.value.hint
    assert set(here.methods()) - set(there.methods()) == {"attention", "explain"}


def test_importing_the_predictor_imports_no_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; import unmask.inference.predictor, unmask.cli.show.introspection, unmask.inference.vector_files"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("name", "heads", "expected"),
    [
        (
            "bert-tiny",
            ["mlm", "nsp"],
            "attention embed explain fill minimal_pairs next_sentence score similarity word_vectors",
        ),
        ("bert-tiny", [], "attention embed explain similarity word_vectors"),
        ("gpt2-mini", ["lm"], "attention embed explain generate minimal_pairs score similarity word_vectors"),
        ("t5-mini", ["lm"], "attention embed explain generate similarity word_vectors"),
        ("elmo-mini", ["bilm"], "embed explain similarity word_vectors"),
    ],
)
def test_methods_are_those_that_work(name: str, heads: list[str], expected: str) -> None:
    shape = SHAPE if name != "elmo-mini" else {}
    predictor = Predictor(Model(preset(name, vocab_size=TOKENIZER.size, **shape), heads).init(0), TOKENIZER, "cpu")
    assert predictor.methods() == expected.split()


def test_an_unknown_backend_is_said(tmp_path: Any) -> None:
    with pytest.raises(UserError, match="backend 'tf'"):
        load(tmp_path, backend="tf")


def test_long_work_is_told_in_order_and_a_bar_needs_somebody_who_looks(capsys: pytest.CaptureFixture[str]) -> None:
    told: list[tuple[float, float]] = []
    lengths = [30_000, 10, 60_000, 20]
    found = map_in_chunks(
        list("abcd"), lengths, lambda some: some, lambda done, total, what: told.append((done, total))
    )
    assert found == list("abcd")
    assert told[-1] == (4, 4) and [done for done, _ in told] == sorted(done for done, _ in told) and len(told) > 1
    with progress_callback(None) as tell:
        tell(1, 2, "")
    assert capsys.readouterr() == ("", "")
