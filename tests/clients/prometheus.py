"""A real Prometheus, with the files in deploy/."""

import json
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.parse
from contextlib import contextmanager
from pathlib import Path

from harness import PATIENCE, fetch, free_port, wait_until

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


class Prometheus:
    def __init__(self, url):
        self.url = url
        # Unix time in seconds of all queries; `None` is now.
        self.time = None

    def ask(self, path, **parameters):
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        said = json.loads(fetch(address))
        assert said["status"] == "success", said
        return said["data"]

    def query(self, query):
        """The series of the result: `{metric, value}` each."""
        when = {} if self.time is None else {"time": self.time}
        return self.ask("query", query=query, **when)["result"]

    def sum(self, query):
        """The sum of a query's values; `None` for none."""
        values = [float(one["value"][1]) for one in self.query(query)]
        return sum(values) if values else None


@contextmanager
def prometheus(proxy, key=None):
    """Starts it with the files in deploy/prometheus/ before the proxy, but with short intervals."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "key").write_text(key or "none is needed")
        shutil.copy(DEPLOY / "prometheus/alerts.yml", folder)
        settings = (DEPLOY / "prometheus/prometheus.yml").read_text()
        for written, here in {
            '"plimsoll:1876"': f'"{proxy.removeprefix("http://")}"',
            "scrape_interval: 15s": "scrape_interval: 1s",
            "/run/plimsoll.key": f"{folder}/key",
        }.items():
            assert settings.count(written) == 1, written
            settings = settings.replace(written, here)
        settings += "\nglobal: { evaluation_interval: 1s, scrape_timeout: 1s }\n"
        (folder / "prometheus.yml").write_text(settings)
        process, url = start(folder)
        try:
            yield Prometheus(url)
        finally:
            process.terminate()
            process.wait(PATIENCE)


def start(folder):
    log = folder / "log"
    for _ in range(5):
        port = free_port()
        with open(log, "wb") as out:
            process = subprocess.Popen(
                ["prometheus", f"--config.file={folder}/prometheus.yml",
                 f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}"],
                stdout=out, stderr=out, cwd=folder,
            )
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: process.poll() is not None or is_ready(url), "Prometheus is ready")
        if process.poll() is None:
            return process, url
    raise AssertionError(f"Prometheus did not start:\n{log.read_text()}")


def is_ready(url):
    try:
        return bool(fetch(f"{url}/-/ready"))
    except (urllib.error.URLError, OSError):
        return False
