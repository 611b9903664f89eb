"""Tiny model directories with random weights, written by transformers, to compare a Predictor with the classes of transformers."""

from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForMaskedLM, BertConfig, ModernBertConfig, ModernBertForMaskedLM

from unmask.recipe import TokenizerRecipe
from unmask.text.tokenizer import Tokenizer

CORPUS = [
    "the president of the united states spoke to the congress about the state of the union .",
    "we played at the lakes and she was playing in the united kingdom ; the states were united !",
    "北京是中国的首都，我们都喜欢去北京看长城。今天天气很好。",
] * 20
SIZES = {"wordpiece": 110, "bpe": 320, "unigram": 70, "char": 60, "byte": 261}


def train(kind: str = "wordpiece", **settings: Any) -> Tokenizer:
    return Tokenizer.train(CORPUS, TokenizerRecipe(type=kind, vocab_size=SIZES[kind], **settings))


def make_folder(folder: Path, tokenizer: Tokenizer, architecture: Any, spread: float = 0.6, **more: Any) -> Path:
    """Save a random model with transformers; the weights have a large spread, so that candidate probabilities differ clearly."""
    shape = {
        "vocab_size": tokenizer.size + 5,  # padded, as many vocabularies are
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 48,
        "max_position_embeddings": 64,
        "initializer_range": spread,
        "pad_token_id": tokenizer.pad,
        **more,
    }
    modern = architecture is ModernBertForMaskedLM
    if modern:
        special = {
            "cls_token_id": tokenizer.cls,
            "sep_token_id": tokenizer.sep,
            "bos_token_id": None,
            "eos_token_id": None,
        }
        config = ModernBertConfig(**shape, **special, local_attention=8, global_attn_every_n_layers=2)
    else:
        config = BertConfig(**shape)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        architecture(config).save_pretrained(folder)
    tokenizer.save(folder, segments=not modern, max_length=64)
    return folder


masked_lm = cache(lambda folder: AutoModelForMaskedLM.from_pretrained(folder).eval())


def logits_of(folder: Path, ids: list[int]) -> torch.Tensor:
    """Reference logits (T, V) of transformers for one text without padding."""
    with torch.inference_mode():
        return masked_lm(folder)(torch.tensor([ids])).logits[0].double()
