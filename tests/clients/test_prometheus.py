"""A real Prometheus, with the scrape configuration of docs/operations/metrics.md, and its linter."""

import hashlib
import json
import re
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness import PATIENCE, free_port, serving, wait_until

PAGE = Path(__file__).resolve().parents[2] / "docs/operations/metrics.md"

CONFIG = """
[server]
data_dir = "data"

[models."simulated/plimsoll-8k"]
context_length = 8192
"""

KEY = "a-client-key"
KEYED = CONFIG + f"""
[clients.watcher]
key_sha256 = "{hashlib.sha256(KEY.encode()).hexdigest()}"
"""

MODEL = 'gen_ai_provider_name="simulated",gen_ai_request_model="plimsoll-8k"'


def fetch(url, key=None, body=None):
    request = urllib.request.Request(url, json.dumps(body).encode() if body else None)
    if key:
        request.add_header("authorization", f"Bearer {key}")
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return answer.read().decode()


def chat(proxy, key=None, model="simulated/plimsoll-8k", stream=False):
    body = {"model": model, "stream": stream, "messages": [{"role": "user", "content": "Ahoy"}]}
    return fetch(f"{proxy}/v1/chat/completions", key, body)


@contextmanager
def prometheus(proxy, key):
    """Starts it with the page's configuration and an interval of a second; yields a query function."""
    written = re.search(r"```yaml\n(scrape_configs:.*?)```", PAGE.read_text(), re.DOTALL)[1]
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "key").write_text(key or "none is needed")
        scraped = written.replace("127.0.0.1:1876", proxy.removeprefix("http://"))
        scraped = re.sub("scrape_interval: .*", "scrape_interval: 1s", scraped)
        scraped = re.sub("credentials_file: .*", f"credentials_file: {folder}/key", scraped)
        assert str(folder) in scraped and "1s" in scraped
        (folder / "prometheus.yml").write_text(scraped)
        process, url = start(folder)
        try:
            yield lambda query: ask(url, query)
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


def ask(url, query):
    """The sum of a query's values; `None` for none."""
    said = json.loads(fetch(f"{url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"))
    assert said["status"] == "success", said
    values = [float(one["value"][1]) for one in said["data"]["result"]]
    return sum(values) if values else None


@pytest.mark.parametrize("key", [None, KEY], ids=["without keys", "with a client key"])
def test_prometheus_scrapes_the_counters(key):
    with serving(KEYED if key else CONFIG) as proxy:
        usage = json.loads(chat(proxy, key))["usage"]
        for _ in range(2):
            assert "[DONE]" in chat(proxy, key, stream=True)
        for name in ("not-in-any-list", "nor-this"):
            refused(proxy, key, name)
        with prometheus(proxy, key) as query:
            requests = 'plimsoll_requests_total{outcome="done",status="2xx"}'
            wait_until(lambda: query(requests) == 3, "three requests were scraped")
            assert query("up") == 1
            tokens = f'gen_ai_client_token_usage_sum{{gen_ai_token_type="input",{MODEL}}}'
            assert query(tokens) == 3 * usage["prompt_tokens"]
            for counted, value in {
                "gen_ai_client_operation_duration_seconds_count": 3,
                "gen_ai_client_operation_time_to_first_chunk_seconds_count": 2,
            }.items():
                assert query(f'{counted}{{gen_ai_operation_name="chat",{MODEL}}}') == value
            assert query('plimsoll_answers_total{health="healthy"}') == 3
            assert query("plimsoll_hard_utilisation_ratio_count") == 3
            assert query("plimsoll_guard_duration_seconds_count") >= 3
            assert query('plimsoll_store_duration_seconds_count{operation="save"}') == 3
            assert query("plimsoll_sessions_total") == 3
            assert query("time() - process_start_time_seconds") < 300
            # The next scrape sees another one.
            chat(proxy, key)
            wait_until(lambda: query(requests) == 4, "the fourth was scraped")
            quantile = "histogram_quantile(0.5, gen_ai_client_operation_duration_seconds_bucket)"
            assert query(quantile) is not None


def refused(proxy, key, name):
    """The name of an unknown model becomes no label."""
    with pytest.raises(urllib.error.HTTPError) as error:
        chat(proxy, key, model=f"simulated/{name}")
    assert error.value.code == 404
    metrics = fetch(f"{proxy}/metrics", key)
    assert name not in metrics
    assert 'gen_ai_request_model="other"' in metrics


def test_the_linter_finds_nothing():
    with serving(CONFIG) as proxy:
        chat(proxy)
        chat(proxy, stream=True)
        metrics = fetch(f"{proxy}/metrics")
    assert len(metrics.splitlines()) > 100
    checked = subprocess.run(["promtool", "check", "metrics"], input=metrics, text=True,
                             capture_output=True, timeout=PATIENCE)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
