"""How each entry of a vocabulary is spelled, in UTF-8 bytes: what a model that reads characters is told."""

from unmask.text.tokenizer import Tokenizer
from unmask.text.vocabulary import byte_signs

BYTES = {sign: byte for byte, sign in enumerate(byte_signs())}  # as byte-level pieces are written


def spellings(tokenizer: Tokenizer) -> list[bytes]:
    """The bytes of each id; a blank before them says that a word begins there.

    >>> from unmask.recipe import TokenizerRecipe
    >>> t = Tokenizer.train(["aa aa"] * 3, TokenizerRecipe(vocab_size=8))
    >>> spellings(t)[4:]
    [b'[MASK]', b'a', b' a', b' aa']
    """
    return [_spelling(tokenizer, i) for i in range(tokenizer.size)]


def _spelling(tokenizer: Tokenizer, id: int) -> bytes:
    token = tokenizer.token(id)
    if tokenizer.special[id]:
        return token.encode()
    if tokenizer.kind == "wordpiece":
        return token[2:].encode() if token.startswith("##") else f" {token}".encode()
    if tokenizer.kind in ("bpe", "byte") and all(c in BYTES for c in token):
        return bytes(BYTES[c] for c in token)
    return token.replace("▁", " ").encode()
