"""Counter-based randomness: every random number is derived from a key such as (seed, "mask", epoch, example).

A run that is killed and resumed, or that uses another number of processes, gets the same numbers without saving random states.
"""

import hashlib

import numpy as np

SeedKey = int | str
_MASK = (1 << 64) - 1


def stable_seed(*parts: SeedKey) -> int:
    """Return a 64-bit number for a key.

    >>> stable_seed(0, "mask", 3) == stable_seed(0, "mask", 3) != stable_seed(0, "mask", 4)
    True
    """
    text = "\x1f".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def generator(*parts: SeedKey) -> np.random.Generator:
    """Return a numpy generator for a key (counter-based, so that similar keys are independent).

    >>> generator(1, "a").integers(100) == generator(1, "a").integers(100)
    np.True_
    """
    return np.random.Generator(np.random.Philox(key=stable_seed(*parts)))


def permute(i: int, n: int, key: int) -> int:
    """Return element i of a pseudo-random permutation of range(n), in O(1) memory and time.

    Apply a four-round Feistel network on the next even number of bits until the result is inside the range (cycle walking).

    >>> sorted(permute(i, 10, key=7) for i in range(10)) == list(range(10))
    True
    """
    assert 0 <= i < n
    half = max(1, ((n - 1).bit_length() + 1) // 2)
    low = (1 << half) - 1
    while True:
        left, right = i >> half, i & low
        for r in range(4):
            mixed = (right * 0x9E3779B97F4A7C15 + key + r * 0xD1B54A32D192ED03) & _MASK
            mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
            mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
            left, right = right, left ^ ((mixed >> 31) & low)
        i = (left << half) | right
        if i < n:
            return i
