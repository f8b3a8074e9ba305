"""A client that nothing but `plimsoll run` or `plimsoll connect --write` points at the proxy."""

import os
import subprocess
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from contract import STEPS, Task
from harness import PATIENCE, TWO_KEY, binary, messages_provider, responses_provider, serving

AGENTS = Path(__file__).with_name("agents")
NODE_MODULES = AGENTS.parents[2] / "target/clients/node/node_modules"
# Names that agents have for models of both providers, with the window that the settings of the proxy have, in tokens.
OWN_MODELS = [(messages_provider, "anthropic/claude-opus-5-5", 48_000), (responses_provider, "openai/gpt-5.5", 32_000)]
# The window that an agent is told, in tokens: its model's, so that it compacts by itself, or one that leaves all to the proxy.
TOLD = [None, 1_000_000]
# Seconds for one run.
LONG = 300
# Nobody outside is asked, and a busy machine may store slowly.
MORE = '\n[catalogue]\nurl = ""\n\n[store]\ntimeout_ms = 5000\n'


@contextmanager
def set_up(way, client, home, config, model=None, window=None):
    """Sets a client up in this way, for a proxy with this configuration; yields the words before the client's command.

    The user's files in `home` have to be there before: `run` has to leave them alone, and after `connect`, `disconnect` has to
    leave them as they were, byte for byte, and nothing of its own."""
    settings = home / "plimsoll.toml"
    # What the proxy keeps lies in the home.
    settings.write_text(config.replace('data_dir = "data"', "") + MORE)
    before = read_settings(home)
    if way == "run":
        yield [binary(), "run", "--config", settings, "--end-unused-ms", "1000"]
        written, told = before, "run"
    else:
        command = [binary(), "--config", settings]
        names = ["--model", model] if model else []
        names += ["--window", str(window)] if window else []
        with serving(config, TWO_KEY) as url:
            plimsoll(home, *command, "connect", client, "--write", "--url", url, *names)
            written = {path for path, text in read_settings(home).items() if before.get(path) != text}
            assert written, f"connect {client} has written nothing"
            yield []
        told = plimsoll(home, *command, "disconnect", client)
        assert "was changed" not in told, told
    after = read_settings(home)
    assert {path: after.get(path) for path in written} == {path: before.get(path) for path in written}, told


def plimsoll(home, *command):
    environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
    done = subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def read_settings(home):
    """The hidden files of a home, but for the proxy's own."""
    files = (path.relative_to(home) for path in home.glob(".*/**/*") if path.is_file())
    files = [*files, *(path.relative_to(home) for path in home.glob(".*") if path.is_file())]
    return {path: (home / path).read_bytes() for path in files if path.parts[:3] != (".local", "state", "plimsoll")}


def play(command, home, prompt="", cwd=None, **environment):
    """Runs a client to its end, in its home or a folder below; what it printed."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), **TWO_KEY, **environment}
    done = subprocess.run(command, input=prompt, cwd=cwd or home, env=environment, capture_output=True, text=True,
                          timeout=LONG, check=False)
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    return done.stdout


def play_library(program, script, home, provider, config, model, key, streamed=False):
    """Runs an agent that has nothing but its key and what `plimsoll run` gives it, past the window of its model."""
    task = Task(2 * STEPS)
    for number in [call[1]["number"] for step in task.steps for call in step]:
        (home / f"{number}.txt").write_text(task.lookup(number))
    with set_up("run", None, home, config) as before:
        said = play([*before, program, AGENTS / script, model], home, task.text, OPENAI_API_KEY=key, ANTHROPIC_API_KEY=key,
                    PYTHONPATH=str(AGENTS.parent), NODE_PATH=str(NODE_MODULES))
    task.asked = list(map(int, (home / "asked").read_text().split()))
    task.check_seen(provider, said, streamed)


class Reading(Task):
    """A plan of an agent that reads files, together larger than its window, and whose shell counts their lines."""

    LINES = 300

    def __init__(self, folder, path_name, **more):
        super().__init__()
        self.found = folder / "found"
        self.steps = []
        folder.mkdir()
        for number in range(STEPS):
            file = folder / f"{number}.txt"
            file.write_text(f"file {number}: wind and rain, a rising tide\n" * self.LINES)
            self.steps.append([["read", {path_name: str(file)}]])
        self.steps.append([["bash", {"command": "cat *.txt | wc -l > found", **more}]])

    def check_read(self, provider, said):
        """The loop completed, and exceeded the window on its way without an error."""
        assert f"Done after {len(self.steps)} steps" in said, said[-2_000:]
        assert self.found.read_text().strip() == str(STEPS * self.LINES)
        seen = provider.seen(self.name)
        assert [one["error"] for one in seen if one["error"]] == []
        assert_cut(seen)


def assert_cut(seen):
    """A prompt has fewer tokens than the one before it: the guard cut, unnoticed by the client."""
    sent = [one["tokens"] for one in seen]
    assert any(later < earlier for earlier, later in pairwise(sent)), sent
