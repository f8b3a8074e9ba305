"""The examples of docs/clients.md, unchanged but for the proxy's address."""

import re
import subprocess
import sys
from pathlib import Path

from harness import PATIENCE

PAGE = Path(__file__).resolve().parents[2] / "docs/clients.md"
ADDRESS = "http://127.0.0.1:1876"
# Seconds for an example. Most of it is the import of a client library, minutes on a busy machine that runs it first.
EXAMPLE_PATIENCE = 10 * PATIENCE


def examples():
    """The Python example of each section, by heading."""
    sections = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    found = {section.splitlines()[0]: re.search(r"```python\n(.*?)```", section, re.DOTALL) for section in sections}
    return {heading: code[1] for heading, code in found.items() if code}


def check(heading, url):
    """Runs an example as a process, and asserts that it prints something."""
    code = examples()[heading].replace(ADDRESS, url)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=EXAMPLE_PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
