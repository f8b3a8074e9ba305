"""A client that nothing but `plimsoll run` or `plimsoll connect --write` points at the proxy."""

import os
import subprocess
from contextlib import contextmanager

from harness import PATIENCE, binary, serving

WAYS = ["run", "connect"]
# Nobody outside is asked, and a busy machine may store slowly.
MORE = '\n[catalogue]\nurl = ""\n\n[store]\ntimeout_ms = 5000\n'


@contextmanager
def set_up(way, client, home, config, model=None, environment=None):
    """Sets a client up in this way, for a proxy with this configuration; yields the words before the client's command.

    The user's files in `home` have to be there before. After `connect`, `disconnect` has to leave them as they were, byte for
    byte, and nothing of its own."""
    settings = home / "plimsoll.toml"
    # What the proxy keeps lies in the home.
    settings.write_text(config.replace('data_dir = "data"', "") + MORE)
    if way == "run":
        yield [binary(), "run", "--config", settings, "--end-unused-ms", "1000"]
        return
    command = [binary(), "--config", settings]
    before = read_files(home)
    with serving(config, environment) as url:
        names = ["--model", model] if model else []
        plimsoll(home, *command, "connect", client, "--write", "--url", url, *names)
        written = {path for path, text in read_files(home).items() if before.get(path) != text}
        assert written, f"connect {client} has written nothing"
        yield []
    told = plimsoll(home, *command, "disconnect", client)
    after = read_files(home)
    assert {path: after.get(path) for path in written} == {path: before.get(path) for path in written}, told
    assert "was changed" not in told, told


def plimsoll(home, *command):
    environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
    done = subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def read_files(home):
    """The files of a home, but for the proxy's own."""
    files = (path for path in home.rglob("*") if path.is_file() and ".local/state/plimsoll" not in str(path))
    return {path: path.read_bytes() for path in files}
