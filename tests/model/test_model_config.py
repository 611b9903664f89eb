import dataclasses
import subprocess
import sys

import pytest

from unmask.errors import UserError
from unmask.model.config import ModelConfig, preset
from unmask.model.families import FAMILIES
from unmask.model.model import count_parameters, with_dependencies


@pytest.mark.parametrize(
    ("name", "layers", "hidden", "intermediate", "positions"),
    [
        ("bert-tiny", 2, 128, 512, 512),
        ("bert-mini", 4, 256, 1024, 512),
        ("bert-small", 4, 512, 2048, 512),
        ("bert-medium", 8, 512, 2048, 512),
        ("bert-base", 12, 768, 3072, 512),
        ("bert-large", 24, 1024, 4096, 512),
        ("modernbert-base", 22, 768, 1152, 8192),
        ("modernbert-large", 28, 1024, 2624, 8192),
    ],
)
def test_published_sizes(name, layers, hidden, intermediate, positions):
    c = preset(name)
    assert (c.layers, c.hidden, c.intermediate, c.max_positions) == (layers, hidden, intermediate, positions)
    assert c.heads == hidden // 64


@pytest.mark.parametrize(
    ("name", "heads", "millions"),
    [  # as published: Devlin et al. and Turc et al. without heads, Warner et al. with heads
        ("bert-tiny", ["pooler"], 4.4),
        ("bert-mini", ["pooler"], 11.2),
        ("bert-small", ["pooler"], 28.8),
        ("bert-medium", ["pooler"], 41.4),
        ("bert-base", ["pooler"], 109.5),
        ("bert-large", ["pooler"], 335.1),
        ("modernbert-base", ["mlm"], 149.7),
        ("modernbert-large", ["mlm"], 395.9),
    ],
)
def test_published_parameter_counts(name, heads, millions):
    assert count_parameters(preset(name), heads) / 1e6 == pytest.approx(millions, abs=0.06)


@pytest.mark.parametrize(
    ("family", "architecture"),
    [
        ("bert", "BertForPreTraining"),
        ("roberta", "RobertaForMaskedLM"),
        ("xlm-roberta", "XLMRobertaForMaskedLM"),
        ("albert", "AlbertForPreTraining"),
        ("distilbert", "DistilBertForMaskedLM"),
        ("electra", "ElectraForPreTraining"),
        ("modernbert", "ModernBertForMaskedLM"),
    ],
)
def test_every_preset_has_an_architecture_for_its_objective(family, architecture):
    for name in FAMILIES[family].presets:
        config = preset(name)
        assert config.architecture(with_dependencies(config.default_objective.split("+"))) == architecture


@pytest.mark.parametrize(
    ("family", "heads", "architecture"),
    [
        ("bert", ["mlm", "nsp"], "BertForPreTraining"),
        ("bert", ["mlm"], "BertForMaskedLM"),
        ("bert", ["nsp"], "BertForNextSentencePrediction"),
        ("bert", ["classify"], "BertForSequenceClassification"),
        ("bert", ["classify", "mlm"], "BertForSequenceClassification"),
        ("bert", ["pooler"], "BertModel"),
        ("bert", ["tag"], "BertForTokenClassification"),
        ("bert", ["answer"], "BertForQuestionAnswering"),
        ("bert", ["choose"], "BertForMultipleChoice"),
        ("roberta", ["classify"], "RobertaForSequenceClassification"),
        ("roberta", ["pooler"], "RobertaModel"),
        ("albert", ["mlm", "sop"], "AlbertForPreTraining"),
        ("electra", ["mlm"], "ElectraForMaskedLM"),
        ("electra", ["rtd", "generator"], "ElectraForPreTraining"),
        ("modernbert", ["rtd", "generator"], "ModernBertModel"),
        ("modernbert", ["mlm"], "ModernBertForMaskedLM"),
        ("modernbert", ["mlm", "nsp"], "ModernBertForMaskedLM"),
        ("modernbert", ["classify"], "ModernBertForSequenceClassification"),
        ("modernbert", ["nsp"], "ModernBertModel"),
        ("modernbert", [], "ModernBertModel"),
    ],
)
def test_architecture(family, heads, architecture):
    config = preset(next(iter(FAMILIES[family].presets)))
    assert config.architecture(with_dependencies(heads)) == architecture


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("bert-minni", {}, "did you mean bert-mini"),
        ("bert-mini", {"layer": 3}, "did you mean layers"),
        ("bert-mini", {"hidden": 250}, "250 is not divisible by 4"),
        ("bert-mini", {"heads": 3}, "256 is not divisible by 3"),
        ("bert-mini", {"layers": 0}, "layers: 0"),
        ("bert-mini", {"layers": "six"}, "expected: int"),
        ("bert-mini", {"layers": True}, "expected: int"),
        ("bert-mini", {"layers": 2.5}, "expected: int"),
        ("bert-mini", {"dropout": 1.0}, "below 1"),
        ("bert-mini", {"activation": "gelo"}, "did you mean gelu"),
        ("bert-mini", {"norm": "pre"}, "is not possible for the family bert"),
        ("bert-mini", {"positions": "rope"}, "is not possible for the family bert"),
        ("bert-mini", {"family": "brt"}, "did you mean bert"),
        ("bert-mini", {"pad_id": 40_000}, "below vocab_size"),
        ("modernbert-mini", {"segments": 2}, "is not possible for the family modernbert"),
        ("modernbert-mini", {"hidden": 12}, "even number"),
        ("modernbert-mini", {"local_window": 0}, "2 or more"),
        ("bert-mini", {"embedding": 64}, "is not possible for the family bert"),
        ("bert-mini", {"shared_layers": True}, "is not possible for the family bert"),
        ("albert-mini", {"shared_layers": False}, "is not possible for the family albert"),
        ("roberta-mini", {"pad_id": None}, "counted from it"),
        ("electra-mini", {"generator": 1.5}, "at most 1"),
        ("electra-mini", {"generator": 0.0}, "above 0"),
    ],
)
def test_invalid_config_raises(name, changes, message):
    with pytest.raises(UserError, match=message):
        preset(name, **changes)


def test_architecture_without_heads_raises():
    with pytest.raises(UserError, match="no heads"):
        preset("bert-tiny").architecture([])


def test_config_is_frozen():
    config = preset("bert-tiny", labels=["a", 1])
    assert config.labels == ("a", "1")
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.layers = 3
    assert ModelConfig(**dataclasses.asdict(config)) == config


def test_config_does_not_import_torch():
    code = "import sys, unmask.model.config; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
