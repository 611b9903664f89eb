"""Bits of a token's flag byte: what starts at this token. Apart from everything else so that it imports nothing."""

WORD, SENTENCE, DOCUMENT = 1, 2, 4
