"""A script: serve one GGUF file by llama.cpp's server until SIGTERM, or until its starter is gone.

Run in a process of its own: the server lives inside of it. It uses no other part of lhkit, and
needs the package `xllamacpp`, which is llama.cpp built for Python.
"""

import argparse
import hashlib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

CONTEXT_TOKENS = 8192
"""Of each conversation, as a vLLM that lhkit starts has it."""
BUILD_ALIAS = "lhkit-build-"
"""How a served name begins that tells which build of llama.cpp serves: wheels leave it untold."""
_BUILD_CHARS = 12
_CACHE_MIB = 512
"""Room for prompts of earlier conversations; the server's own default grows to 8 GiB."""
_WATCH_S = 1.0


def serve(
    file: Path, port: int, at_once: int, aliases: Sequence[str] = (), adapter: Path | None = None
) -> None:
    """Serve, and say where when it does; the aliases are listed beside the file's name.

    An adapter is a GGUF file of a LoRA, which is added to the weights.

    One more tells the build: version of the wheel, and the first letters of its library's SHA-256.

    Threads that wait for each other sleep: on a machine that does other work, too, those that spin
    wait for a turn that the others do not give them, and it answers twenty times slower.
    """
    os.putenv("OMP_WAIT_POLICY", "passive")  # read when OpenMP is loaded, by the next line
    import xllamacpp

    ended = threading.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: ended.set())
    asked = xllamacpp.CommonParams()
    asked.model.path = str(file)
    if adapter is not None:
        asked.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(str(adapter), 1.0)]
    asked.model_alias = {
        file.name,
        *aliases,
        f"{BUILD_ALIAS}{_build(xllamacpp.xllamacpp.__file__)}",
    }
    asked.port = port
    asked.n_parallel = at_once
    asked.n_ctx = CONTEXT_TOKENS * at_once
    asked.cache_ram_mib = _CACHE_MIB
    asked.cpuparams.n_threads = len(os.sched_getaffinity(0))
    asked.n_gpu_layers = 0
    asked.verbosity = 1
    server = xllamacpp.Server(asked)
    print(f"{file.name} is served at {server.listening_address}", flush=True)  # noqa: T201 - a script
    starter = os.getppid()
    while not ended.wait(_WATCH_S) and os.getppid() == starter:
        pass  # who started it and was killed cannot tell it to end


def _build(library: str) -> str:
    with Path(library).open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    return f"xllamacpp-{version('xllamacpp')}-{digest[:_BUILD_CHARS]}"


def main(arguments: Sequence[str]) -> None:
    """Serve what the arguments say."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("at_once", type=int)
    parser.add_argument("aliases", nargs="*")
    parser.add_argument("--adapter", type=Path)
    serve(**vars(parser.parse_args(arguments)))


if __name__ == "__main__":
    main(sys.argv[1:])
