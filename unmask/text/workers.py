"""Tokenize in worker processes; results are returned in order.

The workers are plain child processes that communicate over standard input and output. `multiprocessing` is not
used: its `spawn` runs the user's script again in every child, so `unmask.pretrain("corpus/")` at the top of a
script would start itself forever, and its `fork` is unsafe once torch or tokenizers have threads. A worker imports
neither torch nor the user's script, exits when its input ends (also if the parent was killed), and leaves Ctrl-C
and SIGTERM to the parent.
"""

import os
import pickle
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from unmask.errors import UserError
from unmask.text.encode import DocumentEncoder, EncodeResult, EncodeTask
from unmask.text.tokenizer import Tokenizer

T = TypeVar("T")
Batch = tuple[list[EncodeTask], T]  # documents to encode, and a note that is returned with the result


def encode_inline(
    tokenizer: Tokenizer, language: str, batches: Iterable[Batch[T]]
) -> Generator[tuple[EncodeResult, T], None, None]:
    """Encode in this process; used for small corpora and `workers: 1`."""
    encode = DocumentEncoder(tokenizer, language)
    for works, note in batches:
        yield encode(works), note


def encode_parallel(
    workers: int, tokenizer: Path, language: str, batches: Iterable[Batch[T]]
) -> Generator[tuple[EncodeResult, T], None, None]:
    """Encode in worker processes, in the order of `batches`; at most two batches per worker are in flight, which bounds memory."""
    pool = [_Worker(tokenizer, language) for _ in range(workers)]
    free: SimpleQueue[_Worker] = SimpleQueue()
    for worker in pool:
        free.put(worker)

    def call(works: list[EncodeTask]) -> EncodeResult:
        worker = free.get()
        try:
            return worker.call(works)
        finally:
            free.put(worker)

    # One thread per worker waits for its answer; the threads do not compute.
    threads = ThreadPoolExecutor(workers)
    waiting: deque[tuple[Future[EncodeResult], T]] = deque()
    try:
        for works, note in batches:
            if len(waiting) >= 2 * workers:
                future, earlier = waiting.popleft()
                yield future.result(), earlier
            waiting.append((threads.submit(call, works), note))
        while waiting:
            future, earlier = waiting.popleft()
            yield future.result(), earlier
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        for worker in pool:
            worker.close()
        threads.shutdown(wait=True)


class _Worker:
    def __init__(self, tokenizer: Path, language: str):
        environment = {
            **os.environ,
            "TOKENIZERS_PARALLELISM": "false",  # one core each
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        self.process = subprocess.Popen(
            # -P: a file `numpy.py` in the user's folder must not be imported as numpy
            [sys.executable, "-P", "-m", "unmask.text.workers", str(tokenizer.resolve()), language],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )

    def call(self, works: list[EncodeTask]) -> EncodeResult:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            pickle.dump(works, self.process.stdin, pickle.HIGHEST_PROTOCOL)
            self.process.stdin.flush()
            answer: Any = pickle.load(self.process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError, ValueError):
            code = self.process.wait()
            raise UserError(
                f"a worker process ended with code {code}" + (" (killed: out of memory?)" if code == -9 else ""),
                hint="run the same command again to continue; to use less memory, add --set data.workers=1",
            ) from None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def close(self) -> None:
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                assert pipe is not None
                pipe.close()
        self.process.wait()


def _serve(encode: DocumentEncoder) -> None:
    read, write = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a stray print must not mix with the answers
    while True:
        try:
            works = pickle.load(read)
        except EOFError:
            return
        try:
            answer: Any = encode(works)
        except Exception as error:
            error.add_note("(in a worker process)")
            answer = error
        pickle.dump(answer, write, pickle.HIGHEST_PROTOCOL)
        write.flush()


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # a terminal or a service manager signals the whole group
        signal.signal(number, signal.SIG_IGN)
    with suppress(BrokenPipeError):  # the parent was killed while we answered
        _serve(DocumentEncoder(Tokenizer.load(sys.argv[1]), sys.argv[2]))
