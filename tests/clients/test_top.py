"""`plimsoll top` in a terminal, before the running proxy: what a user sees and types."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
import urllib.request
from contextlib import ExitStack, contextmanager

import pyte
import pytest

from harness import PATIENCE, binary, serving, wait_until

CONFIG = '[server]\ndata_dir = "data"\n'
SIZE = (16, 150)


class Screen:
    """What stands on a terminal of 16 lines and 150 columns."""

    def __init__(self, command, environment):
        self.screen = pyte.Screen(SIZE[1], SIZE[0])
        self.stream = pyte.ByteStream(self.screen)
        self.terminal, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
        self.before = termios.tcgetattr(theirs)
        self.theirs = theirs
        os.set_blocking(self.terminal, False)
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE,
            env={**os.environ, "TERM": "xterm-256color", **environment}, start_new_session=True,
        )

    def text(self):
        try:
            while data := os.read(self.terminal, 65536):
                self.stream.feed(data)
        except BlockingIOError:
            pass
        return "\n".join(line.rstrip() for line in self.screen.display)

    def shows(self, pattern):
        wait_until(lambda: re.search(pattern, self.text(), re.M), f"{pattern!r} on\n{self.text()}")

    def type(self, keys):
        os.write(self.terminal, keys.encode())

    def ended(self):
        wait_until(lambda: (self.text(), self.process.poll() is not None)[1], "the end")
        return self.process.returncode

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()
        os.close(self.terminal)
        os.close(self.theirs)


@pytest.fixture(scope="module")
def proxy():
    with serving(CONFIG) as url:
        yield url


@contextmanager
def top(*arguments, **environment):
    screen = Screen([binary(), "top", *arguments], environment)
    try:
        yield screen
    finally:
        screen.close()


def say(url, words, model="simulated/plimsoll-8k"):
    body = {"model": model, "messages": [{"role": "user", "content": words}]}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(),
                                     {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return answer.headers["x-plimsoll-session"]


def test_sessions_come_to_the_screen_as_they_are_made(proxy):
    with top("--url", proxy) as screen:
        screen.shows(r"plimsoll top http://127\.0\.0\.1:\d+ +live")
        first = say(proxy, "hello")
        screen.shows(rf"^{first} +healthy .*/ 8,192 .* simulated/plimsoll-8k")
        assert "│" in screen.text() and "┃" in screen.text()
        second = say(proxy, "words " * 6_500)
        screen.shows(rf"^{second} +critical ")
        screen.shows(r"2 sessions +critical 1 +caution 0 +healthy 1 +unknown 0")
        # Typed as a user would: a search, its end, another order, the end.
        screen.type("/critical\r")
        screen.shows(r"searched: critical")
        assert first not in screen.text() and second in screen.text()
        screen.type("/" + "\x7f" * 8 + "\r")
        screen.shows(rf"^{first}")
        screen.type("s")
        screen.shows(r"s sort \(fullness\)")
        screen.type("q")
        assert screen.ended() == 0
        # The terminal is as it was.
        assert termios.tcgetattr(screen.theirs)[3] == screen.before[3]


def test_a_proxy_that_goes_is_missed():
    with ExitStack() as running:
        url = running.enter_context(serving(CONFIG))
        with top("--url", url) as screen:
            screen.shows("live")
            running.close()
            screen.shows("reconnecting: ")
            screen.type("\x03")
            assert screen.ended() == 0


def test_without_a_terminal_it_is_one_table(proxy):
    session = say(proxy, "a table, please")
    printed = subprocess.run([binary(), "top", "--url", proxy], capture_output=True, text=True,
                             timeout=PATIENCE, check=True).stdout
    lines = [line.split() for line in printed.splitlines()]
    assert lines[0] == ["session", "level", "tokens", "window", "full", "model", "course", "age"]
    row = next(line for line in lines if line[0] == session)
    assert row[1] == "healthy" and row[3] == "8,192" and row[-4] == "simulated/plimsoll-8k"


def test_what_is_wrong_is_said_and_no_terminal_is_taken(proxy):
    for arguments, said in [
        (["--url", "nowhere"], "this is no address"),
        (["--url", "http://127.0.0.1:1"], "cannot be reached: "),
        (["--url", f"{proxy}/v1"], "is this a Plimsoll proxy of the same release?"),
    ]:
        done = subprocess.run([binary(), "top", *arguments], capture_output=True, text=True,
                              timeout=PATIENCE, check=False)
        assert done.returncode == 1 and said in done.stderr, done


KEYS = CONFIG + """
[clients.alice]
key_sha256 = "2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90"
"""


def test_the_key_comes_from_the_environment():
    with serving(KEYS) as url:
        run = [binary(), "top", "--url", url]
        without = subprocess.run(run, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert without.returncode == 1 and "--key-env" in without.stderr
        run += ["--key-env", "ALICE"]
        with_key = subprocess.run(run, capture_output=True, text=True, timeout=PATIENCE, check=True,
                                  env={**os.environ, "ALICE": "alice"})
        assert "session" in with_key.stdout
