"""Run the notebooks and save their outputs; with --record, record their cassettes first.

    python notebooks/renew.py                                  # outputs from the cassettes
    python notebooks/renew.py --record                         # cassettes from new servers
    python notebooks/renew.py --record http://127.0.0.1:8000   # `gemma` is served there
    python notebooks/renew.py notebooks/04_compare.ipynb --record gemma=ADDRESS

A model without an address is served by `lhkit serve`. Run this after a cell, a prompt, a tool or a
scenario has changed: a cassette refuses new requests.
"""

import argparse
import os
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

import nbformat
from lab import serve
from nbclient import NotebookClient

FOLDER = Path(__file__).parent
CELL_TIMEOUT_S = 3600  # only against hangs

DEFAULT_MODEL = "gemma"
OFFLINE = "LIVE = False"
MODEL = re.compile(
    r"await lhkit\.connect\((?P<endpoint>.*?)\)\s+if LIVE\s+"
    r'else lhkit\.CassetteModel\.open\("(?P<path>.*?)"\)',
    re.DOTALL,
)
"""Matches how a notebook opens a model: the served one, or its cassette."""
NAMED = re.compile(r'LIVE\["(.+?)"\]')
"""Matches how a notebook with several models names one."""


def model_name(endpoint: str) -> str:
    """Return the name of the model that a notebook connects to."""
    match = NAMED.search(endpoint)
    return match[1] if match else DEFAULT_MODEL


def model_names(notebook: nbformat.NotebookNode) -> set[str]:
    """Return the names of the models in a notebook."""
    matches = (match for cell in notebook.cells for match in MODEL.finditer(cell.source))
    return {model_name(match["endpoint"]) for match in matches}


def parse_addresses(words: Iterable[str]) -> dict[str, str]:
    """Return addresses by model, from `NAME=ADDRESS` or `ADDRESS`; empty words are skipped.

    Raises:
        ValueError: a word is not an address.
    """
    addresses = {}
    for word in filter(None, words):
        name, _, address = word.rpartition("=")
        if "://" not in address:
            raise ValueError(
                f"{word} is not an address like http://127.0.0.1:8000 (notebooks go first)"
            )
        addresses[name or DEFAULT_MODEL] = address
    return addresses


def use_servers(source: str, addresses: Mapping[str, str]) -> str:
    """Return a cell's source with servers in place of cassettes."""
    value = dict(addresses) if NAMED.search(source) else addresses.get(DEFAULT_MODEL)
    return source.replace(OFFLINE, f"LIVE = {value!r}")


def use_recorders(source: str, addresses: Mapping[str, str], done: set[str]) -> str:
    """Return a cell's source that records the cassettes that are not in `done`, and adds them.

    Connecting fails if a server serves another model than the notebook names.
    """

    def recorder(match: re.Match[str]) -> str:
        path, endpoint = match["path"], match["endpoint"]
        if path in done:
            return f'lhkit.CassetteModel.open("{path}")'
        done.add(path)
        if endpoint.startswith("LIVE"):
            endpoint = f'lhkit.Endpoint(base_url={endpoint}, model="{model_name(endpoint)}")'
        return f'lhkit.RecordingModel(await lhkit.connect({endpoint}), "{path}")'

    return MODEL.sub(recorder, use_servers(source, addresses))


def execute(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Run all cells in a new kernel, in the folder of the notebooks.

    Raises:
        CellExecutionError: a cell failed.
    """
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT_S,
        resources={"metadata": {"path": str(FOLDER)}},
        record_timing=False,
        store_widget_state=False,
    )
    # the language of the stored outputs, whatever that of the machine is
    executed: nbformat.NotebookNode = client.execute(env={**os.environ, "LANG": "ko_KR.UTF-8"})  # noqa: TID251
    return executed


def tidy(notebook: nbformat.NotebookNode) -> None:
    """Remove metadata that depends on the machine: widget state and versions."""
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {
                "display_name": "Python 3",
                "language": "python",
                "name": "python3",
            },
            "language_info": {"name": "python"},
        }
    )
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)


def record(paths: Iterable[Path], running: Mapping[str, str]) -> None:
    """Record the cassettes of notebooks, with all servers running at the same time.

    Args:
        paths: the notebooks.
        running: addresses of running servers, by model.
    """
    names_by_path = {path: names for path in paths if (names := model_names(read(path)))}
    done: set[str] = set()
    with ExitStack() as servers:
        addresses = dict(running)
        for name in sorted(set().union(*names_by_path.values()) - running.keys()):
            command = (sys.executable, "-m", "lhkit", "serve", name)
            address = servers.enter_context(serve(*command))
            if address is None:
                sys.exit(f"{name} cannot be served (see above): nothing was recorded")
            addresses[name] = address
        for path in names_by_path:
            print(f"{path.name}: recording")
            notebook = read(path)
            for cell in notebook.cells:
                cell.source = use_recorders(cell.source, addresses, done)
            execute(notebook)


def read(path: Path) -> nbformat.NotebookNode:
    """Read a notebook."""
    notebook: nbformat.NotebookNode = nbformat.read(path, as_version=4)
    return notebook


def main() -> None:
    """Renew the notebooks on the command line, or all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all")
    parser.add_argument(
        "--record",
        action="append",
        nargs="?",
        const="",
        metavar="[NAME=]ADDRESS",
        help="record the cassettes first; without an address, from new servers",
    )
    options = parser.parse_args()
    paths = options.notebooks or sorted(FOLDER.glob("*.ipynb"))
    if options.record is not None:
        try:
            running = parse_addresses(options.record)
        except ValueError as error:
            parser.error(str(error))
        record(paths, running)
    for path in paths:
        print(f"{path.name}: running")
        notebook = read(path)
        execute(notebook)
        tidy(notebook)
        nbformat.write(notebook, path)


if __name__ == "__main__":
    main()
