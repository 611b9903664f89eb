"""Count the tokens of texts in a thread pool, in chunks.

Every chunk is a job of its own, and a request submits its next chunk when the last one is done. So a short text waits for one
chunk of each long text, never for a whole text, and a request that failed, was cancelled or timed out stops counting.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from unmask.inference.unknown import unknown_fraction
from unmask.text.tokenizer import Tokenizer

INLINE_CHARS = 4000  # counted in the event loop
CHUNK_CHARS = 32_000  # of a job
POOL = ThreadPoolExecutor(2, thread_name_prefix="unmask-count")
Result = TypeVar("Result")
Part = tuple[int, str]  # the index of a text, and a part of it


@dataclass
class TokenCount:
    tokens: int = 0
    unknown: float = 0.0  # fraction of unknown words, in the first part of the text


async def run_in_pool(call: Callable[[], Result]) -> Result:
    return await asyncio.get_running_loop().run_in_executor(POOL, call)


async def count_tokens(tokenizer: Tokenizer, texts: Sequence[str], limit: int) -> list[TokenCount]:
    """Count the tokens of each text, without special tokens. Stop after `limit`: the rest then counts as 0."""
    counts, total = [TokenCount() for _ in texts], 0

    def count(parts: Sequence[Part]) -> list[tuple[int, float]]:
        encodings = tokenizer.encode_batch([text for _, text in parts])
        return [(len(e), unknown_fraction(tokenizer, e.ids)) for e in encodings]

    inline = sum(map(len, texts)) <= INLINE_CHARS
    for parts in chunk_texts(texts):
        results = count(parts) if inline else await run_in_pool(lambda parts=parts: count(parts))  # type: ignore[misc]
        for (index, _), (tokens, unknown) in zip(parts, results, strict=True):
            if not counts[index].tokens:
                counts[index].unknown = unknown
            counts[index].tokens += tokens
            total += tokens
        if total > limit:
            break
    return counts


def chunk_texts(texts: Sequence[str], size: int = CHUNK_CHARS) -> Iterator[list[Part]]:
    """Group short texts and split long ones into chunks of at most `size` characters; split at a space if possible.

    >>> list(chunk_texts(["a", "bc", "one two three"], 6))
    [[(0, 'a'), (1, 'bc'), (2, 'one')], [(2, ' two')], [(2, ' three')]]
    """
    chunk: list[Part] = []
    length = 0
    for index, text in enumerate(texts):
        for part in split_text(text, size):
            if chunk and length + len(part) > size:
                yield chunk
                chunk, length = [], 0
            chunk.append((index, part))
            length += len(part)
    if chunk:
        yield chunk


def split_text(text: str, size: int) -> Iterator[str]:
    start = 0
    while len(text) - start > size:
        space = text.rfind(" ", start + size // 2, start + size)
        end = space if space > start else start + size
        yield text[start:end]
        start = end
    yield text[start:]
