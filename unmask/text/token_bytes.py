"""Spell each vocabulary entry in UTF-8 bytes, for models that read characters."""

from unmask.text.tokenizer import Tokenizer
from unmask.text.vocabulary import bytes_to_unicode

CHAR_TO_BYTE = {char: byte for byte, char in enumerate(bytes_to_unicode())}  # inverse of byte-level BPE's table


def token_bytes(tokenizer: Tokenizer) -> list[bytes]:
    """Return the bytes of each id, with a leading space if the token starts a word.

    >>> from unmask.recipe import TokenizerRecipe
    >>> t = Tokenizer.train(["aa aa"] * 3, TokenizerRecipe(vocab_size=8))
    >>> token_bytes(t)[4:]
    [b'[MASK]', b'a', b' a', b' aa']
    """
    return [_spelling(tokenizer, i) for i in range(tokenizer.size)]


def _spelling(tokenizer: Tokenizer, id: int) -> bytes:
    token = tokenizer.token(id)
    if tokenizer.special[id]:
        return token.encode()
    if tokenizer.type == "wordpiece":
        return token[2:].encode() if token.startswith("##") else f" {token}".encode()
    if tokenizer.type in ("bpe", "byte") and all(c in CHAR_TO_BYTE for c in token):
        return bytes(CHAR_TO_BYTE[c] for c in token)
    return token.replace("▁", " ").encode()
