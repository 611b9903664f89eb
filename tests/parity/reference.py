"""What the parity tests share: small models of both sides, the same rows for both, and the largest difference."""

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
    """The preset's depth (up to 8 layers), heads and ratios at 16 numbers per head."""
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
        shape["local_window"] = 10  # shorter than the rows below
    return change(full, **(shape | changes))


def stir(model, seed=0):
    """No zero bias, no norm of ones: a swapped or forgotten tensor must show."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.normal_(1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0, 0.1, generator=generator)
    return model.eval()


LENGTHS = (48, 31, 5)


def rows(lengths=LENGTHS):
    """ids, mask, segments; the last row is so short that its padding is out of every local window's sight."""
    generator = torch.Generator().manual_seed(1)
    width = max(lengths)
    mask = torch.arange(width)[None] < torch.tensor(lengths)[:, None]
    ids = torch.randint(5, VOCAB, (len(lengths), width), generator=generator) * mask
    segments = ((torch.arange(width)[None] >= torch.tensor(lengths)[:, None] // 2) & mask).long()
    return ids, mask, segments


def theirs(model, lengths=LENGTHS, **more):
    ids, mask, segments = rows(lengths)
    inputs = {"input_ids": ids, "attention_mask": mask.long()}
    if getattr(model.config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = segments
    if type(model).__name__.endswith("MultipleChoice"):  # the rows are the answers to one question
        inputs = {key: value[None] for key, value in inputs.items()}
    return model(**inputs, **more)


def their_class(architecture):
    return getattr(transformers, architecture)


def build_theirs(config, architecture):
    """transformers' own model of that shape, spelled out here rather than by our table."""
    kind = their_class(architecture).config_class
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
    begin_and_end = {"bos_token_id": 2, "eos_token_id": 3}
    own = {
        "bert": {},
        "roberta": begin_and_end
        | {"max_position_embeddings": config.max_positions + 1, "type_vocab_size": 1, "layer_norm_eps": 1e-5},
        "albert": begin_and_end | {"embedding_size": config.embedding_size},
        "electra": {"embedding_size": config.embedding_size},
        "distilbert": {
            "dim": config.hidden,
            "n_layers": config.layers,
            "n_heads": config.heads,
            "hidden_dim": config.intermediate,
        },
        "modernbert": begin_and_end
        | {
            "local_attention": config.local_window,
            "cls_token_id": 2,
            "sep_token_id": 3,
            "classifier_pooling": config.pooling,
        },
    }
    own["xlm-roberta"] = own["roberta"]
    if config.family == "distilbert":
        for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"):
            del common[key]
    return their_class(architecture)(kind(**common | own[config.family]))


def compare(model, reference):
    """Largest difference over every output, relative to its magnitude, at the tokens that are not padding."""
    ids, mask, segments = rows()
    with torch.no_grad():
        hidden = model(ids, mask, segments)
        out = theirs(reference)
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
            at = mask if head in ("mlm", "tag", "answer", "rtd") else ...
            checks.append(gap(ours[at], named[head][at]))
    if "last_hidden_state" in out:
        checks.append(gap(hidden[mask], out.last_hidden_state[mask]))
    if "pooler_output" in out:
        checks.append(gap(model.heads["pooler"](hidden, mask), out.pooler_output))
    assert checks
    return max(checks)


# The three ways below are those of every family; `compare` says what of two models is to be equal.


def assert_opens_here(reference, folder, heads, compare=compare):
    """A folder of transformers, read here; what was read."""
    reference.save_pretrained(folder)
    loaded = hf.load(folder)
    assert (loaded.missing, loaded.unexpected, list(loaded.model.heads)) == ([], [], with_dependencies(heads))
    assert compare(loaded.model, reference) <= TOLERANCE
    return loaded


def assert_opens_there(folder, model, compare=compare):
    """A folder written here, read by the class that it names."""
    opened = their_class(model.config.architecture(model.heads))
    reference, info = opened.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    assert compare(model, reference.eval()) <= TOLERANCE
    return reference


def assert_comes_back(model, folder, compare=compare):
    """Written here, it opens there; read here again and written again, and written by transformers, it is the same bit for
    bit; the class that opened it."""
    architecture = hf.save(model, folder / "a")
    reference = assert_opens_there(folder / "a", model, compare)
    assert type(reference).__name__ == architecture
    again = hf.load(folder / "a")
    assert_is(again, model)
    hf.save(again.model, folder / "b")
    for file in (folder / "a").iterdir():
        assert file.read_bytes() == (folder / "b" / file.name).read_bytes(), file.name
    reference.save_pretrained(folder / "c")
    ours, back = load_file(folder / "a/model.safetensors"), load_file(folder / "c/model.safetensors")
    assert ours.keys() == back.keys()
    assert all(torch.equal(ours[key], back[key]) for key in ours)
    assert_is(hf.load(folder / "c"), model)
    return architecture


def assert_is(loaded, model):
    """What was read is the model: no key left over, the same config, the same bits."""
    config = loaded.config if model.heads else change(loaded.config, tie=model.config.tie)  # nothing there to tie
    assert (loaded.missing, loaded.unexpected, config) == ([], [], model.config)
    assert differing(loaded.model, model) == []


def differing(a, b):
    """Names of the tensors that are not in both with the same bits."""
    a, b = a.state_dict(), b.state_dict()
    return [key for key in {**a, **b} if key not in a or key not in b or not torch.equal(a[key], b[key])]
