"""A real Prometheus reads the metrics, with deploy/prometheus/; and its linter does."""

import hashlib
import json
import subprocess
import urllib.error

import pytest

from harness import PATIENCE, fetch, serving, wait_until
from prometheus import prometheus

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
metrics = true
"""

MODEL = 'gen_ai_provider_name="simulated",gen_ai_request_model="plimsoll-8k"'


def chat(proxy, key=None, model="simulated/plimsoll-8k", stream=False):
    body = {"model": model, "stream": stream, "messages": [{"role": "user", "content": "Ahoy"}]}
    return fetch(f"{proxy}/v1/chat/completions", key, body)


@pytest.mark.parametrize("key", [None, KEY], ids=["without keys", "with a client key"])
def test_prometheus_scrapes_the_counters(key):
    with serving(KEYED if key else CONFIG) as proxy:
        usage = json.loads(chat(proxy, key))["usage"]
        for _ in range(2):
            assert "[DONE]" in chat(proxy, key, stream=True)
        for name in ("not-in-any-list", "nor-this"):
            refused(proxy, key, name)
        with prometheus(proxy, key) as server:
            query = server.sum
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
