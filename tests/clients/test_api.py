"""The API's own description, tested by schemathesis against the running binary.

Run by hand: target/clients/venv-api/bin/python -m pytest tests/clients/test_api.py
"""

import hashlib
import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from harness import PATIENCE, serving

KEY = "client-key-of-the-api-tests"
ADMIN = "admin-key-of-the-api-tests"
# Seconds for one run; generated cases stop then.
BUDGET = 10

# A request without a model is fitted for the simulated provider's.
OPEN = """
default_provider = "simulated"

[server]
data_dir = "data"
"""

KEYED = OPEN + f"""
[admin]
key_sha256 = "{hashlib.sha256(ADMIN.encode()).hexdigest()}"

[clients.tester]
key_sha256 = "{hashlib.sha256(KEY.encode()).hexdigest()}"
"""

# Paths with a session are tried with an existing one, except in one run with any.
CONFIG = """
[parameters]
"path.id" = "{session}"
"""


def chat(url, key):
    """Begins a conversation; returns its session id."""
    body = {"model": "simulated/plimsoll-8k", "messages": [{"role": "user", "content": "Hello"}]}
    headers = {"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return answer.headers["x-plimsoll-session"]


@pytest.mark.parametrize(("settings", "key", "reader", "known"), [
    (OPEN, None, None, True),
    (KEYED, KEY, KEY, False),
    (KEYED, KEY, ADMIN, True),
], ids=["open", "owner", "admin"])
def test_the_api_is_as_described(tmp_path, settings, key, reader, known):
    with serving(settings) as url:
        session = chat(url, key)
        (tmp_path / "st.toml").write_text(CONFIG.format(session=session) if known else "")
        command = [
            Path(sys.executable).with_name("st"), "--config-file", tmp_path / "st.toml",
            "run", f"{url}/plimsoll/api/openapi.json",
            # An endless stream cannot be checked here; the crate's own tests do.
            "--exclude-path", "/events",
            "--checks", "all",
            "--phases", "examples,coverage,fuzzing",
            "--max-examples", "25", "--max-time", str(BUDGET),
            "--request-timeout", "20", "--seed", "1876",
            "--continue-on-failure", "--no-color",
        ]
        if reader:
            command += ["--header", f"Authorization: Bearer {reader}"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=90)
        assert done.returncode == 0, done.stdout + done.stderr
