"""Bits of a token's flag byte: what starts at this token. A separate module, so that using the bits imports nothing else."""

WORD, SENTENCE, DOCUMENT = 1, 2, 4
