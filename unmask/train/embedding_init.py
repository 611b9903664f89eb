"""A new model's first embedding and first guess, counted from the text (`text/vectors.py`) before the first step."""

import torch

from unmask.model.model import Model
from unmask.text.store import TokenStore
from unmask.text.vectors import TokenSample, initial_vectors, log_frequencies

SCALE = 0.05  # of the vectors' coordinates; larger than the 0.02 of random ones, which have nothing to lose


@torch.no_grad()
def init_embeddings_from_corpus(model: Model, store: TokenStore, seed: int) -> None:
    """Token vectors from what stands near each token; the biases of vocabulary logits from how often each occurs."""
    tokenizer, table, sample = store.tokenizer, model.encoder.embeddings.tokens, TokenSample.from_split(store.train)
    if not model.config.characters:  # a model that reads characters has no vector per token
        vectors = torch.from_numpy(initial_vectors(sample, tokenizer.special, table.weight.shape[1], seed))
        scale = max(SCALE, float(table.weight.std()))  # T5 begins with vectors of length √D
        table.weight[: len(vectors)] = (vectors * scale).to(table.weight)
        if table.padding_idx is not None:  # T5's decoder begins with its padding, which is then no padding
            table.weight[table.padding_idx] = 0.0
    guess = torch.from_numpy(log_frequencies(sample, tokenizer.size))
    for name, bias in model.named_parameters():  # ELECTRA's is its generator's
        if name.startswith("heads.") and name.endswith(".bias") and bias.shape == (model.config.vocab_size,):
            bias.fill_(float(guess.min()))
            bias[: len(guess)] = guess.to(bias)
