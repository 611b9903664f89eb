"""Verbs that serve models over HTTP: serve, and studio, which opens the page."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import unmask
from unmask.cli.options import verb
from unmask.console import Console, write
from unmask.errors import UserError
from unmask.hub import without_revision

if TYPE_CHECKING:
    from unmask.inference.predictor import Predictor

KEY = "UNMASK_API_KEY"
KEY_BYTES = 4096  # of a key file that are read
STUDIO_GRACE = 5.0  # seconds to finish what is in flight when told to stop

Models = Annotated[
    list[str], typer.Argument(help="Model folders, run folders or hub names; NAME=FOLDER to choose a name.")
]
Host = Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for other machines too.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")]
Backend = Annotated[str, typer.Option(help="torch, onnx (exported folders), or auto: as each folder is.")]
Key = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        help="Key that clients must send as a bearer token. Every user of this machine sees it in the process list: "
        "better set UNMASK_API_KEY, or use --api-key-file.",
    ),
]
KeyFile = Annotated[Path | None, typer.Option("--api-key-file", help="File that holds the key and nothing else.")]


@verb(
    "unmask serve runs/quickstart-1/classify",
    "unmask serve film=runs/finetune/classify-1 runs/pretrain/bert-mini-1 --port 8080",
    "UNMASK_API_KEY=secret unmask serve runs/docs/model --host 0.0.0.0",
)
def serve(
    models: Models,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    backend: Backend = "auto",
    api_key: Key = None,
    api_key_file: KeyFile = None,
    cors: Annotated[
        list[str] | None, typer.Option(help="Origin whose pages may ask (https://example.org); repeat for several.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Further name that requests may call the server by, as behind a proxy.")
    ] = None,
    grace: Annotated[float, typer.Option(min=0, help="Seconds to finish what is in flight when told to stop.")] = 30.0,
    max_body: Annotated[int, typer.Option(help="Bytes of a request, also once it is unpacked.")] = 2 << 20,
    max_inputs: Annotated[int, typer.Option(help="Texts of a request.")] = 1024,
    max_tokens: Annotated[int, typer.Option(help="Tokens that the model reads for a request.")] = 1 << 18,
    max_queue: Annotated[int, typer.Option(help="Tokens that may wait for the models.")] = 1 << 20,
    max_response: Annotated[int, typer.Option(help="Bytes of a response, estimated before it is computed.")] = 32 << 20,
    timeout: Annotated[float, typer.Option(help="Seconds until an answer is given up.")] = 120.0,
    slow: Annotated[
        float,
        typer.Option(help="Seconds that a client may take to send a request, or to read the next part of a response."),
    ] = 20.0,
) -> None:
    """Serve models over HTTP: Hugging Face's, OpenAI's and text-embeddings-inference's forms, and a page at /."""
    need_packages()
    # A server mostly has its machine to itself, and small batches: OpenMP's threads look a moment (some 0.1 ms) for more work
    # before they sleep. A text alone then takes a third of the time (docs/log.md); where others compute too, 0 is better.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    from unmask.server.limits import Limits
    from unmask.server.run import Access, free_port, run

    limits = Limits(
        max_body_bytes=max_body, max_inputs=max_inputs, max_request_tokens=max_tokens, max_queue_tokens=max_queue, max_response_bytes=max_response,
        request_timeout=timeout, read_timeout=slow,
    )  # fmt: skip
    key = find_key(host, api_key, api_key_file)
    free_port(host, port)  # before models are read, which may take long
    loaded = load_models(models, backend)
    access = Access(host, port, key, cors or (), allow_host)
    run(loaded, access, limits=limits, shutdown_timeout=grace, on_ready=greeting(loaded, keyed=key is not None))


def find_key(host: str, flag: str | None, file: Path | None) -> str | None:
    """The key that clients must send: from a file, the environment or the command line; None without one."""
    from unmask.server.run import is_local

    environment = os.environ.get(KEY)
    if flag is not None and file is not None:
        raise UserError("both --api-key and --api-key-file", hint="leave --api-key out")
    key = read_key(file) if file is not None else flag if flag is not None else environment
    if key is not None and (not key or not key.isascii() or not key.isprintable() or " " in key):
        got = "an API key with blanks or characters beyond ASCII" if key else "an empty API key"
        raise UserError(
            got, expected="letters, digits and signs, without blanks", hint=f"export {KEY}=$(openssl rand -hex 16)"
        )
    if flag is not None:
        Console().warn(
            "--api-key is visible to every user of this machine in the process list\n"
            f"  hint:     {KEY} in the environment, or --api-key-file FILE"
        )
    if not is_local(host) and key is None:
        Console().warn(
            f"{host} is open to other machines, and there is no key: anyone there may ask\n"
            f"  hint:     {KEY} in the environment, or --api-key-file FILE"
        )
    return key


def read_key(file: Path) -> str:
    try:
        with file.expanduser().open("rb") as opened:
            key = opened.read(KEY_BYTES + 1)
    except OSError as error:
        raise UserError(f"cannot read the API key from {file}: {error.strerror or error}") from None
    if len(key) > KEY_BYTES:
        raise UserError(f"{file} has more than {KEY_BYTES:,} bytes", expected="a file that holds the API key alone")
    return key.decode("utf-8", "replace").strip()


def need_packages() -> None:
    import importlib.util

    lacking = [name for name in ("fastapi", "granian", "prometheus_client") if importlib.util.find_spec(name) is None]
    if lacking:
        raise UserError(f"the server needs {', '.join(lacking)}", hint="pip install 'unmask[serve]'")


def load_models(given: Sequence[str], backend: str = "auto") -> "dict[str, Predictor]":
    """NAME=FOLDER or FOLDER each; a folder's name is its own, or its run's."""
    named: dict[str, str] = {}
    for each in given:
        name, path = split_name(each)
        if name in named:
            raise UserError(f"two models are called {name}", hint=f"{name}-2={path}")
        named[name] = path
    loaded = {}
    for name, path in named.items():
        if sys.stderr.isatty():
            Console().say(f"reading {name} …")
        loaded[name] = unmask.load(path, backend=backend)
    return loaded


def split_name(given: str) -> tuple[str, str]:
    """
    >>> split_name("film=runs/finetune/classify-1"), split_name("runs/docs/model"), split_name("owner/bert@v1")
    (('film', 'runs/finetune/classify-1'), ('docs', 'runs/docs/model'), ('bert', 'owner/bert@v1'))
    """
    name, sign, path = given.partition("=")
    if not sign or Path(given).exists():
        path = given
        parts = [part for part in Path(without_revision(given)).expanduser().absolute().parts if part != "model"]
        name = parts[-1]
    if not path or not name or any(not (c.isalnum() or c in "._-") for c in name):
        raise UserError(
            f"{given!r} gives no name for the model", expected="letters, digits, . _ -", hint=f"NAME={path}"
        )
    return name, path


def greeting(models: "dict[str, Predictor]", keyed: bool = False) -> Callable[[str], None]:
    """What is said once the server listens: what is served, where, and a line to try for each model."""

    def say(url: str) -> None:
        from unmask.server.routes.pipelines import default_pipeline, sample_body

        write(f"unmask serves {len(models)} model{'s' * (len(models) != 1)} at {url}")
        for name, predictor in models.items():
            write(f"\n  {name}  {default_pipeline(predictor)}  {predictor!r}")
            key = ' -H "Authorization: Bearer $UNMASK_API_KEY"' if keyed else ""
            write(f"  curl {url}/models/{name}{key} -d '{sample_body(predictor)}'")
        write(f"\n  page {url}/   reference {url}/docs   Ctrl-C stops")

    return say


@verb(
    "unmask studio runs/",
    "unmask studio runs/ runs/quickstart-1/pretrain film=runs/quickstart-1/classify",
    "unmask studio runs/ --newest 0 --port 8080",
)
def studio(
    runs: Annotated[Path, typer.Argument(help="Folder of runs.")] = Path("runs"),
    models: Annotated[
        list[str] | None, typer.Argument(help="Models to ask; NAME=FOLDER to choose a name. Default: the newest runs'.")
    ] = None,
    newest: Annotated[
        int, typer.Option(min=0, help="Without models: so many of the newest finished runs' are opened.")
    ] = 3,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    backend: Backend = "auto",
    api_key: Key = None,
    api_key_file: KeyFile = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Open the studio in the browser: fill, look, compare meanings, ask a task's model, watch runs as they train."""
    need_packages()
    from unmask.server.run import Access, run
    from unmask.server.studio.runs import Runs

    found = Runs(runs)
    key = find_key(host, api_key, api_key_file)
    loaded = load_models(models or found.models(newest), backend)

    def ready(url: str) -> None:
        write(f"unmask studio shows {found.root} at {url}")
        write(f"  models: {', '.join(loaded) or 'none yet; unmask studio RUNS MODEL opens one'}\n  Ctrl-C stops")
        if show:
            typer.launch(url)

    run(loaded, Access(host, port, key), runs=found.root, shutdown_timeout=STUDIO_GRACE, on_ready=ready)


VERBS = (serve, studio)
