"""A new model's first embedding and first guess, counted from the text (`data/vectors.py`) before the first step."""

import torch

from unmask.data.store import TokenStore
from unmask.data.vectors import first_vectors, log_frequencies
from unmask.model.model import Model

SCALE = 0.05  # of the vectors' coordinates; larger than the 0.02 of random ones, which have nothing to lose


@torch.no_grad()
def warm(model: Model, store: TokenStore, seed: int) -> None:
    """Token vectors from what stands near each token; the bias of vocabulary logits from how often each occurs."""
    embedding, tokenizer = model.embedding, store.tokenizer
    if not model.config.characters:  # a model that reads characters has no vector per token
        vectors = torch.from_numpy(first_vectors(store.train, tokenizer.special, embedding.shape[1], seed))
        scale = max(SCALE, float(embedding.std()))  # T5 begins with vectors of length √D
        embedding[: len(vectors)] = (vectors * scale).to(embedding)
        if model.config.pad_id is not None:
            embedding[model.config.pad_id] = 0.0
    guess = torch.from_numpy(log_frequencies(store.train, tokenizer.size))
    for head in model.heads.values():
        bias = getattr(head, "bias", None)
        if isinstance(bias, torch.nn.Parameter) and len(bias) == model.config.vocab_size:
            bias.fill_(float(guess.min()))
            bias[: len(guess)] = guess.to(bias)
