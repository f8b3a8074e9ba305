"""`plimsoll sessions` before the running proxy: the table, the JSON, and its errors."""

import json
import os
import subprocess
import urllib.request

import pytest

from harness import PATIENCE, binary, serving

CONFIG = '[server]\ndata_dir = "data"\n'
KEYS = CONFIG + """
[clients.alice]
key_sha256 = "2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90"
"""


@pytest.fixture(scope="module")
def proxy():
    with serving(CONFIG) as url:
        yield url


def sessions(*arguments, **environment):
    """The exit code, standard output and standard error of one run."""
    done = subprocess.run([binary(), "sessions", *arguments], capture_output=True, text=True,
                          timeout=PATIENCE, check=False, env={**os.environ, **environment})
    return done.returncode, done.stdout, done.stderr


def say(url, words):
    """The session id of a request with this text."""
    body = {"model": "simulated/plimsoll-8k", "messages": [{"role": "user", "content": words}]}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(),
                                     {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return answer.headers["x-plimsoll-session"]


def test_sessions_are_printed_as_one_table(proxy):
    first, second = say(proxy, "hello"), say(proxy, "words " * 6_900)
    code, printed, _ = sessions("--url", proxy)
    assert code == 0
    heading, *rows = [line.split() for line in printed.splitlines()]
    assert heading == ["session", "client", "level", "tokens", "window", "full", "model", "format", "course", "age"]
    rows = {row[0]: row for row in rows}
    assert rows[first][2] == "healthy" and rows[second][2] == "critical"
    assert rows[first][4] == "8,192" and "chat" in rows[first]
    assert "simulated/plimsoll-8k" in rows[first]


def test_json_output_is_that_of_the_api(proxy):
    say(proxy, "as JSON, please")
    code, printed, _ = sessions("--url", f"{proxy}/", "--json")
    with urllib.request.urlopen(f"{proxy}/plimsoll/api/sessions", timeout=PATIENCE) as answer:
        assert code == 0 and json.loads(printed) == json.load(answer)


def test_all_pages_are_listed():
    with serving(CONFIG) as url:
        made = {say(url, f"number {nth}") for nth in range(205)}
        _, printed, _ = sessions("--url", url, "--json")
        listed = json.loads(printed)
        assert {one["id"] for one in listed["sessions"]} == made and listed["next"] is None


@pytest.mark.parametrize(("path", "said"), [
    ("nowhere", "not an address"),
    ("http://127.0.0.1:1", "cannot be reached: "),
    ("{proxy}/other", "does not answer as a Plimsoll proxy of this release does"),
])
def test_errors_name_the_fault_and_the_remedy(proxy, path, said):
    code, printed, problem = sessions("--url", path.format(proxy=proxy))
    assert (code, printed) == (1, "") and said in problem


def test_the_key_comes_from_the_environment():
    with serving(KEYS) as url:
        code, _, problem = sessions("--url", url)
        assert code == 1 and "set the environment variable PLIMSOLL_KEY" in problem
        code, _, problem = sessions("--url", url, "--key-env", "ALICE", ALICE="bob")
        assert code == 1 and "refuses the key in the environment variable ALICE" in problem
        code, printed, _ = sessions("--url", url, "--key-env", "ALICE", ALICE="alice")
        assert code == 0 and printed.startswith("No sessions yet")
