"""Run the notebooks again and keep what they show; with --record, record their cassettes first.

    python notebooks/renew.py                                  # outputs from the cassettes
    python notebooks/renew.py --record                         # cassettes from servers of its own
    python notebooks/renew.py --record http://127.0.0.1:8000   # that server is asked as `gemma`
    python notebooks/renew.py notebooks/04_compare.ipynb --record gemma=ADDRESS

A model without an address is served as `lhkit serve` does, or found if it is served already.
Needed when a cell, a prompt, a tool or a scenario has changed: an old cassette refuses the new
request. What the tests check is `tests/notebooks`.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

import nbformat
from lab import served
from nbclient import NotebookClient

FOLDER = Path(__file__).parent
CELL_TIMEOUT_S = 3600  # against a hang only

DEFAULT_MODEL = "gemma"
OFFLINE = "LIVE = False"
MODEL = re.compile(
    r"await lhkit\.connect\((?P<endpoint>.*?)\)\s+if LIVE\s+"
    r'else lhkit\.CassetteModel\.open\("(?P<path>.*?)"\)',
    re.DOTALL,
)
"""How a notebook gets a model: the served one, or its cassette."""
NAMED = re.compile(r'LIVE\["(.+?)"\]')
"""How a notebook of several models names one; else it is the default model."""


def name_of(endpoint: str) -> str:
    """Return which model a notebook connects to."""
    named = NAMED.search(endpoint)
    return named[1] if named else DEFAULT_MODEL


def models_of(notebook: nbformat.NotebookNode) -> set[str]:
    """Return the names of the models that a notebook asks."""
    found = (match for cell in notebook.cells for match in MODEL.finditer(cell.source))
    return {name_of(match["endpoint"]) for match in found}


def addresses_of(words: Iterable[str]) -> dict[str, str]:
    """Return each model's address, from `NAME=ADDRESS` or `ADDRESS`; an empty word gives none.

    Raises:
        ValueError: a word is no address.
    """
    addresses = {}
    for word in filter(None, words):
        name, _, address = word.rpartition("=")
        if "://" not in address:
            raise ValueError(
                f"{word} is no address like http://127.0.0.1:8000 (notebooks go first)"
            )
        addresses[name or DEFAULT_MODEL] = address
    return addresses


def live(source: str, addresses: Mapping[str, str]) -> str:
    """Return a cell that asks servers instead of cassettes."""
    of_several = NAMED.search(source)
    value = dict(addresses) if of_several else addresses.get(DEFAULT_MODEL)
    return source.replace(OFFLINE, f"LIVE = {value!r}")


def recording(source: str, addresses: Mapping[str, str], done: set[str]) -> str:
    """Return a cell that records whichever cassette is not in `done` yet.

    A server that serves another model than the notebook names is refused.
    """

    def recorder(found: re.Match[str]) -> str:
        path, endpoint = found["path"], found["endpoint"]
        if path in done:
            return f'lhkit.CassetteModel.open("{path}")'
        done.add(path)
        if endpoint.startswith("LIVE"):
            endpoint = f'lhkit.Endpoint(base_url={endpoint}, model="{name_of(endpoint)}")'
        return f'lhkit.RecordingModel(await lhkit.connect({endpoint}), "{path}")'

    return MODEL.sub(recorder, live(source, addresses))


def execute(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Run all cells in a fresh kernel, in the folder of the notebooks.

    Raises:
        CellExecutionError: a cell failed.
    """
    where = {"metadata": {"path": str(FOLDER)}}
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT_S,
        resources=where,
        record_timing=False,
        store_widget_state=False,
    )
    ran: nbformat.NotebookNode = client.execute()
    return ran


def tidy(notebook: nbformat.NotebookNode) -> None:
    """Leave only what does not depend on the machine: no state of widgets, no versions."""
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


def record(paths: Iterable[Path], given: Mapping[str, str]) -> None:
    """Record the cassettes of the notebooks, all servers running beside each other."""
    asking = {path: names for path in paths if (names := models_of(read(path)))}
    done: set[str] = set()
    with ExitStack() as servers:
        addresses = dict(given)
        for name in sorted(set().union(*asking.values()) - given.keys()):
            command = (sys.executable, "-m", "lhkit", "serve", name)
            address = servers.enter_context(served(*command))
            if address is None:
                sys.exit(f"{name} cannot be served (see above): nothing was recorded")
            addresses[name] = address
        for path in asking:
            print(f"{path.name}: recording")
            notebook = read(path)
            for cell in notebook.cells:
                cell.source = recording(cell.source, addresses, done)
            execute(notebook)


def read(path: Path) -> nbformat.NotebookNode:
    """Return a notebook."""
    notebook: nbformat.NotebookNode = nbformat.read(path, as_version=4)
    return notebook


def main() -> None:
    """Renew the notebooks named on the command line, or all."""
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
        help="record the cassettes first; without an address, from servers of its own",
    )
    options = parser.parse_args()
    paths = options.notebooks or sorted(FOLDER.glob("*.ipynb"))
    if options.record is not None:
        try:
            given = addresses_of(options.record)
        except ValueError as error:
            parser.error(str(error))
        record(paths, given)
    for path in paths:
        print(f"{path.name}: running")
        fresh = read(path)
        execute(fresh)
        tidy(fresh)
        nbformat.write(fresh, path)


if __name__ == "__main__":
    main()
