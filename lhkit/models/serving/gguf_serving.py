"""A script: serve one GGUF file by llama.cpp.

It stops at SIGTERM, or when the parent process exits. It uses no other part of lhkit, and needs the
package `xllamacpp`, llama.cpp built for Python.
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
"""Per conversation, as with a vLLM that lhkit starts."""
BUILD_ALIAS = "lhkit-build-"
"""Prefix of the alias that reports the build of llama.cpp, which wheels do not report. The same as
in `identity`: this script imports nothing of lhkit."""
_BUILD_CHARS = 12
_CACHE_MIB = 512
"""Cache for prompts of earlier conversations; llama.cpp's default grows to 8 GiB."""
_POLL_S = 1.0


def serve(
    file: Path,
    port: int,
    parallel: int,
    aliases: Sequence[str] = (),
    adapter: Path | None = None,
    *,
    threads: int,
) -> None:
    """Serve a file, and print the address when it is ready.

    Args:
        file: GGUF file of the model; its name is the model's.
        port: port on 127.0.0.1.
        parallel: number of concurrent conversations.
        aliases: more served names. One more reports the build: the version of the wheel, and the
            first letters of its library's SHA-256.
        adapter: GGUF file of a LoRA, which is added to the weights.
        threads: how many compute.
    """
    # Waiting threads spin a little, then sleep. By default, answers are ten times slower on a busy
    # machine; without spinning, three times slower on a quiet one (evals/baselines/runtimes.md).
    os.putenv("GOMP_SPINCOUNT", "300")  # read when OpenMP is loaded, by the next line
    import xllamacpp

    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    with Path(xllamacpp.xllamacpp.__file__).open("rb") as library:
        digest = hashlib.file_digest(library, "sha256").hexdigest()
    build = f"xllamacpp-{version('xllamacpp')}-{digest[:_BUILD_CHARS]}"
    params = xllamacpp.CommonParams()
    params.model.path = str(file)
    if adapter is not None:
        params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(str(adapter), 1.0)]
    params.model_alias = {file.name, *aliases, f"{BUILD_ALIAS}{build}"}
    params.port = port
    params.n_parallel = parallel
    params.n_ctx = CONTEXT_TOKENS * parallel
    params.cache_ram_mib = _CACHE_MIB
    params.cpuparams.n_threads = threads
    params.n_gpu_layers = 0
    params.verbosity = 1
    server = xllamacpp.Server(params)
    print(f"{file.name} is served at {server.listening_address}", flush=True)  # noqa: T201 - a script
    parent = os.getppid()
    while not stopped.wait(_POLL_S) and os.getppid() == parent:
        pass  # a killed parent cannot send a signal


def main(arguments: Sequence[str]) -> None:
    """Serve the file that the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("parallel", type=int)
    parser.add_argument("aliases", nargs="*")
    parser.add_argument("--adapter", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    serve(**vars(parser.parse_args(arguments)))


if __name__ == "__main__":
    main(sys.argv[1:])
