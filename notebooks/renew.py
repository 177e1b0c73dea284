"""Run the notebooks again and keep what they show; with an address, record their cassettes first.

    python notebooks/renew.py                                   # outputs from the cassettes
    python notebooks/renew.py --record http://127.0.0.1:8000    # cassettes from a real server

Needed when a cell, a prompt, a tool or a scenario has changed: an old cassette refuses the new
request. What the tests check is `tests/notebooks`.
"""

import argparse
import re
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent
CELL_TIMEOUT_S = 600

OFFLINE = "LIVE = False"
MODEL = re.compile(
    r"await lhkit\.connect\((?P<endpoint>.*?)\)\s+if LIVE\s+"
    r'else lhkit\.CassetteModel\.open\("(?P<path>.*?)"\)',
    re.DOTALL,
)
"""How a notebook gets a model: the served one, or its cassette."""


def live(source: str, address: str) -> str:
    """Return a cell that asks the server at `address` instead of a cassette."""
    return source.replace(OFFLINE, f'LIVE = "{address}"')


def recording(source: str, address: str, done: set[str]) -> str:
    """Return a cell that records from `address` whichever cassette is not in `done` yet."""

    def recorder(found: re.Match[str]) -> str:
        path = found["path"]
        if path in done:
            return f'lhkit.CassetteModel.open("{path}")'
        done.add(path)
        return f'lhkit.RecordingModel(await lhkit.connect({found["endpoint"]}), "{path}")'

    return live(MODEL.sub(recorder, source), address)


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


def main() -> None:
    """Renew the notebooks named on the command line, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all")
    parser.add_argument("--record", metavar="ADDRESS", help="of a server with the embedded Gemma")
    options = parser.parse_args()
    done: set[str] = set()
    for path in options.notebooks or sorted(FOLDER.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        if options.record and any(MODEL.search(cell.source) for cell in notebook.cells):
            print(f"{path.name}: recording")
            copy = nbformat.from_dict(notebook)
            for cell in copy.cells:
                cell.source = recording(cell.source, options.record, done)
            execute(copy)
        print(f"{path.name}: running")
        fresh = nbformat.read(path, as_version=4)
        execute(fresh)
        tidy(fresh)
        nbformat.write(fresh, path)


if __name__ == "__main__":
    main()
