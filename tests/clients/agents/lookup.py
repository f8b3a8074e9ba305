"""The tool of the agents in Python: an entry of the log, from the folder that they run in."""

from pathlib import Path


def lookup(number: int) -> str:
    """An entry of the log."""
    with open("asked", "a") as asked:
        asked.write(f"{number}\n")
    return Path(f"{number}.txt").read_text()
