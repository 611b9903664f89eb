"""Shared code of the parity tests: small models of both libraries, equal inputs for both, and the largest difference."""

import torch
import transformers
from near import gap
from safetensors.torch import load_file

from unmask.model import hf
from unmask.model.config import change, preset, presets
from unmask.model.model import with_dependencies

TOLERANCE = 1e-5
VOCAB = 97
ENCODERS = ("bert", "roberta", "xlm-roberta", "albert", "distilbert", "electra", "modernbert")
ENCODER_PRESETS = [name for name, fields in presets().items() if fields["family"] in ENCODERS]


def small(name, **changes):
    """Return the preset with its depth (up to 8 layers), heads and ratios, and 16 dimensions per head."""
    full = preset(name, vocab_size=VOCAB, pad_id=0, cls_id=2, sep_id=3)
    hidden = 16 * full.heads
    shape = {
        "layers": min(full.layers, 8),
        "hidden": hidden,
        "embedding": full.embedding * hidden // full.hidden,
        "intermediate": full.intermediate * hidden // full.hidden,
        "max_positions": 64,
    }
    if full.local_window:
        shape["local_window"] = 10  # shorter than the sequences below
    return change(full, **(shape | changes))


def randomize_weights(model, seed=0):
    """Replace all weights by random values, without zero biases or unit norms, so that a swapped or missing tensor is detected."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.normal_(1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0, 0.1, generator=generator)
    return model.eval()


LENGTHS = (48, 31, 5)


def rows(lengths=LENGTHS):
    """Return ids, mask and segments. The last row is so short that its padding is outside of every local window."""
    generator = torch.Generator().manual_seed(1)
    width = max(lengths)
    mask = torch.arange(width)[None] < torch.tensor(lengths)[:, None]
    ids = torch.randint(5, VOCAB, (len(lengths), width), generator=generator) * mask
    segments = ((torch.arange(width)[None] >= torch.tensor(lengths)[:, None] // 2) & mask).long()
    return ids, mask, segments


def run_reference(model, lengths=LENGTHS, **more):
    ids, mask, segments = rows(lengths)
    inputs = {"input_ids": ids, "attention_mask": mask.long()}
    if getattr(model.config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = segments
    if type(model).__name__.endswith("MultipleChoice"):  # the rows are the choices of one question
        inputs = {key: value[None] for key, value in inputs.items()}
    return model(**inputs, **more)


def reference_class(architecture):
    return getattr(transformers, architecture)


def build_reference(config, architecture):
    """Build the transformers model of this shape, with a config written here, independent of our conversion table."""
    kind = reference_class(architecture).config_class
    common = {
        "vocab_size": VOCAB,
        "hidden_size": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.intermediate,
        "max_position_embeddings": config.max_positions,
        "tie_word_embeddings": config.tie,
        "pad_token_id": 0,
    }
    if config.labels:
        common["num_labels"] = len(config.labels)
    bos_and_eos = {"bos_token_id": 2, "eos_token_id": 3}
    by_family = {
        "bert": {},
        "roberta": bos_and_eos
        | {"max_position_embeddings": config.max_positions + 1, "type_vocab_size": 1, "layer_norm_eps": 1e-5},
        "albert": bos_and_eos | {"embedding_size": config.embedding_size},
        "electra": {"embedding_size": config.embedding_size},
        "distilbert": {
            "dim": config.hidden,
            "n_layers": config.layers,
            "n_heads": config.heads,
            "hidden_dim": config.intermediate,
        },
        "modernbert": bos_and_eos
        | {
            "local_attention": config.local_window,
            "cls_token_id": 2,
            "sep_token_id": 3,
            "classifier_pooling": config.pooling,
        },
    }
    by_family["xlm-roberta"] = by_family["roberta"]
    if config.family == "distilbert":
        for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"):
            del common[key]
    return reference_class(architecture)(kind(**common | by_family[config.family]))


def compare(model, reference):
    """Return the largest relative difference over all outputs at tokens that are not padding."""
    ids, mask, segments = rows()
    with torch.no_grad():
        hidden = model(ids, mask, segments)
        out = run_reference(reference)
    logits = out.get("logits")
    named = dict.fromkeys(("mlm", "nsp", "sop", "rtd", "classify", "tag"), logits)
    named |= {"choose": None if logits is None else logits.flatten()}
    if "prediction_logits" in out:
        named |= {
            "mlm": out.prediction_logits,
            "nsp": out.get("seq_relationship_logits"),
            "sop": out.get("sop_logits"),
        }
    if "start_logits" in out:
        named["answer"] = torch.stack([out.start_logits, out.end_logits], -1)
    checks = []
    for head in model.heads:
        if named.get(head) is not None:
            ours = model.logits(head, hidden, mask)
            assert ours.shape == named[head].shape, head
            selected = mask if head in ("mlm", "tag", "answer", "rtd") else ...
            checks.append(gap(ours[selected], named[head][selected]))
    if "last_hidden_state" in out:
        checks.append(gap(hidden[mask], out.last_hidden_state[mask]))
    if "pooler_output" in out:
        checks.append(gap(model.heads["pooler"](hidden, mask), out.pooler_output))
    assert checks
    return max(checks)


# The three checks below apply to every family; `compare` defines what must be equal.


def assert_loads_from_transformers(reference, folder, heads, compare=compare):
    """Save with transformers, load here, compare. Return the result of loading."""
    reference.save_pretrained(folder)
    loaded = hf.load(folder)
    assert (loaded.missing, loaded.unexpected, list(loaded.model.heads)) == ([], [], with_dependencies(heads))
    assert compare(loaded.model, reference) <= TOLERANCE
    return loaded


def assert_loads_in_transformers(folder, model, compare=compare):
    """Load a directory that was saved here with the transformers class that it names. Return the transformers model."""
    architecture_class = reference_class(model.config.architecture(model.heads))
    reference, info = architecture_class.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    assert compare(model, reference.eval()) <= TOLERANCE
    return reference


def assert_round_trip(model, folder, compare=compare):
    """Save here, load in transformers; save again here and in transformers: all files are equal bit for bit. Return the class name."""
    architecture = hf.save(model, folder / "a")
    reference = assert_loads_in_transformers(folder / "a", model, compare)
    assert type(reference).__name__ == architecture
    again = hf.load(folder / "a")
    assert_same_model(again, model)
    hf.save(again.model, folder / "b")
    for file in (folder / "a").iterdir():
        assert file.read_bytes() == (folder / "b" / file.name).read_bytes(), file.name
    reference.save_pretrained(folder / "c")
    ours, saved_again = load_file(folder / "a/model.safetensors"), load_file(folder / "c/model.safetensors")
    assert ours.keys() == saved_again.keys()
    assert all(torch.equal(ours[key], saved_again[key]) for key in ours)
    assert_same_model(hf.load(folder / "c"), model)
    return architecture


def assert_same_model(loaded, model):
    """Assert that loading gave the same model: no missing or unexpected keys, the same config, the same bits."""
    config = (
        loaded.config if model.heads else change(loaded.config, tie=model.config.tie)
    )  # without heads there is nothing to tie
    assert (loaded.missing, loaded.unexpected, config) == ([], [], model.config)
    assert differing_tensors(loaded.model, model) == []


def differing_tensors(a, b):
    """Return the names of tensors that are missing in one model or differ."""
    a, b = a.state_dict(), b.state_dict()
    return [key for key in {**a, **b} if key not in a or key not in b or not torch.equal(a[key], b[key])]
