"""Commands that deploy models: serve, studio, export."""

import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import unmask
from unmask.cli.flags import recipe_flags
from unmask.cli.options import OUTPUT, Backend, Device, Json, Model, command, dry_run_option, print_json
from unmask.console import Console, write
from unmask.errors import UserError
from unmask.hub import without_revision

if TYPE_CHECKING:
    from unmask.inference.predictor import Predictor

KEY = "UNMASK_API_KEY"
KEY_BYTES = 4096  # maximum size of a key file
STUDIO_SHUTDOWN_TIMEOUT = 5.0  # seconds

Models = Annotated[
    list[str],
    typer.Argument(help="Model folders, run folders or Hub model IDs; NAME=FOLDER sets a name.", metavar="MODEL..."),
]
Host = Annotated[
    str, typer.Option(help="Address to listen on; 0.0.0.0 accepts connections from other machines.", metavar="HOST")
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 selects a free one.", metavar="N")]
Key = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        help="Bearer token that clients must send. Visible in the process list: prefer UNMASK_API_KEY or --api-key-file.",
        metavar="KEY",
    ),
]
KeyFile = Annotated[
    Path | None, typer.Option("--api-key-file", help="File that contains only the API key.", metavar="FILE")
]


CorsOrigin = Annotated[
    list[str] | None,
    typer.Option(help="Allowed CORS origin, e.g. https://example.org. Repeatable.", metavar="ORIGIN"),
]
AllowedHost = Annotated[
    list[str] | None,
    typer.Option(help="Additional allowed Host header, e.g. behind a proxy. Repeatable.", metavar="NAME"),
]
MaxBody = Annotated[
    str,
    typer.Option(help="Maximum request body, also after decompression.", metavar="SIZE", rich_help_panel="Limits"),
]
MaxInputs = Annotated[int, typer.Option(help="Maximum texts per request.", metavar="N", rich_help_panel="Limits")]
MaxTokens = Annotated[int, typer.Option(help="Maximum tokens per request.", metavar="N", rich_help_panel="Limits")]
MaxQueue = Annotated[int, typer.Option(help="Maximum tokens in the queue.", metavar="N", rich_help_panel="Limits")]
MaxResponse = Annotated[
    str, typer.Option(help="Maximum response, estimated in advance.", metavar="SIZE", rich_help_panel="Limits")
]
RequestTimeout = Annotated[
    float, typer.Option(help="Maximum seconds per request.", metavar="SECONDS", rich_help_panel="Timeouts")
]
ReadTimeout = Annotated[
    float,
    typer.Option(
        help="Seconds to wait for a client to send its request, or to read more of the response.",
        metavar="SECONDS",
        rich_help_panel="Timeouts",
    ),
]
ShutdownTimeout = Annotated[
    float,
    typer.Option(
        min=0, help="Seconds to finish requests in progress on shutdown.", metavar="SECONDS", rich_help_panel="Timeouts"
    ),
]


@command(
    "unmask serve runs/quickstart-1/classify",
    "unmask serve film=runs/finetune/classify-1 runs/pretrain/bert-mini-1 --port 8080",
    "UNMASK_API_KEY=secret unmask serve runs/docs/model --host 0.0.0.0",
)
def serve(
    models: Models,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    backend: Backend = "auto",
    device: Device = "auto",
    api_key: Key = None,
    api_key_file: KeyFile = None,
    cors_origin: CorsOrigin = None,
    allowed_host: AllowedHost = None,
    max_body: MaxBody = "2MB",
    max_inputs: MaxInputs = 1024,
    max_tokens: MaxTokens = 1 << 18,
    max_queue: MaxQueue = 1 << 20,
    max_response: MaxResponse = "32MB",
    request_timeout: RequestTimeout = 120.0,
    read_timeout: ReadTimeout = 20.0,
    shutdown_timeout: ShutdownTimeout = 30.0,
) -> None:
    """Serve models over HTTP (OpenAI, TEI and HF APIs).

    Compatible with the clients of the Hugging Face Hub, OpenAI and text-embeddings-inference. The studio is at /.
    """
    require_server_extras()
    # OpenMP threads spin about 0.1 ms for more work before they sleep: a single text then takes a third of the time (docs/log.md).
    # On a machine that is busy with other work, 0 is better.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    from unmask.server.limits import Limits
    from unmask.server.run import Access, pick_free_port, run

    limits = Limits(
        max_body_bytes=parse_size("--max-body", max_body),
        max_inputs=max_inputs,
        max_request_tokens=max_tokens,
        max_queue_tokens=max_queue,
        max_response_bytes=parse_size("--max-response", max_response),
        request_timeout=request_timeout,
        read_timeout=read_timeout,
    )
    key = find_key(host, api_key, api_key_file)
    pick_free_port(host, port)  # before models are loaded, which may take long
    loaded = load_models(models, backend, device)
    access = Access(host, port, key, cors_origin or (), allowed_host)
    banner = startup_banner(loaded, keyed=key is not None)
    run(loaded, access, limits=limits, shutdown_timeout=shutdown_timeout, on_ready=banner)


def parse_size(option: str, text: str) -> int:
    """
    >>> parse_size("--max-body", "2MB"), parse_size("--max-body", "512kB"), parse_size("--max-body", "1000")
    (2097152, 524288, 1000)
    """
    match = re.fullmatch(r"(\d+)\s*(|[KMG]B?|B)", text.strip(), re.IGNORECASE)
    if not match:
        raise UserError(f"{option} {text} is not a size", expected="a number of bytes, or a size such as 512KB or 2MB")
    return int(match[1]) << {"K": 10, "M": 20, "G": 30}.get(match[2][:1].upper(), 0)


def find_key(host: str, flag: str | None, file: Path | None, risk: str = "use the models") -> str | None:
    """Return the API key from a file, the environment or the command line; None without one. `risk`: what anyone could do then."""
    from unmask.server.run import is_local

    environment = os.environ.get(KEY)
    if flag is not None and file is not None:
        raise UserError("both --api-key and --api-key-file were given", hint="remove --api-key")
    key = read_key(file) if file is not None else flag if flag is not None else environment
    if key is not None and (not key or not key.isascii() or not key.isprintable() or " " in key):
        problem = "an API key with spaces or non-ASCII characters" if key else "an empty API key"
        raise UserError(
            problem, expected="printable ASCII characters without spaces", hint=f"export {KEY}=$(openssl rand -hex 16)"
        )
    if flag is not None:
        Console().warn(
            "--api-key is visible to every user of this machine in the process list\n"
            f"  hint:     {KEY} in the environment, or --api-key-file FILE"
        )
    if not is_local(host) and key is None:
        Console().warn(
            f"{host} accepts other machines without an API key: anyone there can {risk}\n"
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
        raise UserError(f"{file} has more than {KEY_BYTES:,} bytes", expected="a file that contains only the API key")
    return key.decode("utf-8", "replace").strip()


def require_server_extras() -> None:
    import importlib.util

    missing = [name for name in ("fastapi", "granian", "prometheus_client") if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"the server needs {', '.join(missing)}", hint="pip install 'unmask[serve]'")


def load_models(arguments: Sequence[str], backend: str = "auto", device: str = "auto") -> "dict[str, Predictor]":
    """Load the models of arguments NAME=FOLDER or FOLDER. The default name is that of the folder or its run."""
    named: dict[str, str] = {}
    for argument in arguments:
        name, path = split_name(argument)
        if name in named:
            raise UserError(f"two models are called {name}", hint=f"{name}-2={path}")
        named[name] = path
    loaded = {}
    for name, path in named.items():
        if sys.stderr.isatty():
            Console().say(f"loading {name} …")
        loaded[name] = unmask.load(path, device, backend)
    return loaded


def split_name(argument: str) -> tuple[str, str]:
    """
    >>> split_name("film=runs/finetune/classify-1"), split_name("runs/docs/model"), split_name("owner/bert@v1")
    (('film', 'runs/finetune/classify-1'), ('docs', 'runs/docs/model'), ('bert', 'owner/bert@v1'))
    """
    name, sign, path = argument.partition("=")
    if not sign or Path(argument).exists():
        path = argument
        parts = [part for part in Path(without_revision(argument)).expanduser().absolute().parts if part != "model"]
        name = parts[-1]
    if not path or not name or any(not (c.isalnum() or c in "._-") for c in name):
        raise UserError(f"no model name in {argument!r}", expected="letters, digits, . _ -", hint=f"NAME={path}")
    return name, path


def startup_banner(models: "dict[str, Predictor]", keyed: bool = False) -> Callable[[str], None]:
    """Print, once the server listens, what is served where and a command to try for each model."""

    def say(url: str) -> None:
        from unmask.server.routes.pipelines import default_pipeline, sample_body

        write(f"unmask serves {len(models)} model{'s' * (len(models) != 1)} at {url}")
        for name, predictor in models.items():
            write(f"\n  {name}  {default_pipeline(predictor)}  {predictor!r}")
            key = ' -H "Authorization: Bearer $UNMASK_API_KEY"' if keyed else ""
            write(f"  curl {url}/models/{name}{key} -d '{sample_body(predictor)}'")
        write(f"\n  page {url}/   reference {url}/docs   Ctrl-C stops")

    return say


@command(
    "unmask studio runs/",
    "unmask studio runs/ runs/quickstart-1/pretrain film=runs/quickstart-1/classify",
    "unmask studio runs/ --last 0 --port 8080",
)
def studio(
    runs: Annotated[Path, typer.Argument(help="Folder of runs.", metavar="[RUNS]")] = Path("runs"),
    models: Annotated[
        list[str] | None,
        typer.Argument(
            help="Models to load; NAME=FOLDER sets a name.",
            show_default="those of the latest runs",
            metavar="[MODEL...]",
        ),
    ] = None,
    last: Annotated[
        int, typer.Option(min=0, help="Without MODEL: load the models of the N latest finished runs.", metavar="N")
    ] = 3,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    backend: Backend = "auto",
    device: Device = "auto",
    api_key: Key = None,
    api_key_file: KeyFile = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Open the web UI: try models and watch runs."""
    require_server_extras()
    from unmask.server.run import Access, run
    from unmask.server.studio.runs import Runs

    run_list = Runs(runs)
    key = find_key(host, api_key, api_key_file)
    loaded = load_models(models or run_list.models(last), backend, device)

    def ready(url: str) -> None:
        write(f"unmask studio shows {run_list.root} at {url}")
        write(f"  models: {', '.join(loaded) or 'none yet; unmask studio RUNS MODEL opens one'}\n  Ctrl-C stops")
        if show:
            typer.launch(url)

    run(loaded, Access(host, port, key), runs=run_list.root, shutdown_timeout=STUDIO_SHUTDOWN_TIMEOUT, on_ready=ready)


@command(
    "unmask export runs/finetune/classify-1",
    "unmask export runs/finetune/classify-1 --int8 --data test.csv -o classifier-int8",
    "unmask export runs/finetune/classify-1 --format static --data train.csv",
    "unmask export runs/docs/model --dry-run --json",
)
@recipe_flags("export")
def export(
    model: Model,
    format: Annotated[
        Literal["onnx", "static"],
        typer.Option(help="ONNX graph, or a static copy of a classifier: one vector per token."),
    ] = "onnx",
    int8: Annotated[bool, typer.Option("--int8", help="Quantize weights to int8: smaller and faster.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Folder; never overwritten.",
            show_default="MODEL-FORMAT",
            metavar="FOLDER",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="onnx: labeled file (text for a pre-trained model); fail if the metric drops by over 0.5 points. "
            "static: texts to learn from, labeled or not. Repeatable.",
            metavar="FILE",
        ),
    ] = None,
    push: Annotated[str, typer.Option(help="Upload to the Hugging Face Hub under this name.", metavar="NAME")] = "",
    dry_run: Annotated[bool, dry_run_option("Print what would be written.")] = False,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Export to ONNX, optionally int8, or as a static copy.

    An ONNX export is compared with the PyTorch model and discarded if the outputs differ. A static copy is a small model that is
    trained on the outputs of a classifier: many times faster, and less accurate.
    """
    from unmask.cli.show.export import export_lines

    result = unmask.export(
        model, format=format, int8=int8, out=out, data=data or (), push=push, dry_run=dry_run,
        console=Console(quiet=as_json), **settings,
    )  # fmt: skip
    return print_json(result) if as_json else write(*export_lines(result))
