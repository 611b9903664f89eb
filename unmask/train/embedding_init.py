"""Initialize token embeddings and output biases of a new model from corpus statistics (`text/vectors.py`)."""

import torch

from unmask.model.model import Model
from unmask.text.store import TokenStore
from unmask.text.vectors import TokenSample, initial_vectors, log_frequencies

SCALE = 0.05  # standard deviation of the embeddings; random ones get 0.02, but these carry information from the start


@torch.no_grad()
def init_embeddings_from_corpus(model: Model, store: TokenStore, seed: int) -> None:
    """Set token embeddings from co-occurrence statistics and the biases of vocabulary logits from log frequencies."""
    tokenizer, table, sample = store.tokenizer, model.encoder.embeddings.tokens, TokenSample.from_split(store.train)
    if not model.config.characters:  # character-based models have no embedding per token
        vectors = torch.from_numpy(initial_vectors(sample, tokenizer.special, table.weight.shape[1], seed))
        scale = max(SCALE, float(table.weight.std()))  # T5 initializes embeddings with standard deviation 1
        table.weight[: len(vectors)] = (vectors * scale).to(table.weight)
        if table.padding_idx is not None:  # None for T5, whose decoder starts with the padding token
            table.weight[table.padding_idx] = 0.0
    biases = torch.from_numpy(log_frequencies(sample, tokenizer.size))
    for name, parameter in model.named_parameters():  # for ELECTRA: the bias of its generator
        if name.startswith("heads.") and name.endswith(".bias") and parameter.shape == (model.config.vocab_size,):
            parameter.fill_(float(biases.min()))
            parameter[: len(biases)] = biases.to(parameter)
