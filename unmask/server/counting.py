"""How many tokens texts have, counted beside the event loop and in slices.

Every slice is a job of its own, and a request hands in its next one when the last is done. So a short text waits for a slice
of each long one, never for a whole text, and a request that was refused, cancelled or timed out counts no further.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from unmask.inference.unknown import unknown_share
from unmask.text.tokenizer import Tokenizer

INLINE = 4000  # characters that are counted on the spot
SLICE = 32_000  # characters of a job
POOL = ThreadPoolExecutor(2, thread_name_prefix="unmask-count")
Found = TypeVar("Found")
Part = tuple[int, str]  # the number of a text, and a part of it


@dataclass
class Count:
    tokens: int = 0
    unknown: float = 0.0  # share of its words that the tokenizer does not know


async def in_pool(call: Callable[[], Found]) -> Found:
    return await asyncio.get_running_loop().run_in_executor(POOL, call)


async def count(tokenizer: Tokenizer, texts: Sequence[str], most: int) -> list[Count]:
    """Of each text, without special tokens. Stops once there are more than `most`: what is left then counts as nothing."""
    counts, total = [Count() for _ in texts], 0
    short = sum(map(len, texts)) <= INLINE
    for parts in slices(texts):
        found = measure(tokenizer, parts) if short else await in_pool(lambda parts=parts: measure(tokenizer, parts))  # type: ignore[misc]
        for (number, _), (tokens, unknown) in zip(parts, found, strict=True):
            first = not counts[number].tokens
            counts[number].tokens += tokens
            counts[number].unknown = unknown if first else counts[number].unknown
            total += tokens
        if total > most:
            break
    return counts


def measure(tokenizer: Tokenizer, parts: Sequence[Part]) -> list[tuple[int, float]]:
    encodings = tokenizer.encode_batch([text for _, text in parts])
    return [(len(e), unknown_share(tokenizer, e.ids)) for e in encodings]


def slices(texts: Sequence[str], size: int = SLICE) -> Iterator[list[Part]]:
    """Short texts together, long ones in parts, at most `size` characters at a time; a part ends at a blank where it can.

    >>> list(slices(["a", "bc", "one two three"], 6))
    [[(0, 'a'), (1, 'bc'), (2, 'one')], [(2, ' two')], [(2, ' three')]]
    """
    batch: list[Part] = []
    held = 0
    for number, text in enumerate(texts):
        for part in parts_of(text, size):
            if batch and held + len(part) > size:
                yield batch
                batch, held = [], 0
            batch.append((number, part))
            held += len(part)
    if batch:
        yield batch


def parts_of(text: str, size: int) -> Iterator[str]:
    start = 0
    while len(text) - start > size:
        blank = text.rfind(" ", start + size // 2, start + size)
        end = blank if blank > start else start + size
        yield text[start:end]
        start = end
    yield text[start:]
