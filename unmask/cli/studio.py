"""The verb that opens the page: studio."""

from pathlib import Path
from typing import Annotated

import typer

from unmask.cli.options import verb
from unmask.cli.serving import Backend, Host, Key, KeyFile, Port, find_key, load_models, need_packages
from unmask.console import write

GRACE = 5.0  # seconds to finish what is in flight when told to stop


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

    run(loaded, Access(host, port, key), runs=found.root, grace=GRACE, ready=ready)


VERBS = (studio,)
