"""Spell each vocabulary entry in UTF-8 bytes, for models that read characters."""

from unmask.text.tokenizer import Tokenizer
from unmask.text.vocabulary import bytes_to_unicode

CHAR_TO_BYTE = {sign: byte for byte, sign in enumerate(bytes_to_unicode())}  # as byte-level pieces are written


def token_bytes(tokenizer: Tokenizer) -> list[bytes]:
    """The bytes of each id; a blank before them says that a word begins there.

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
