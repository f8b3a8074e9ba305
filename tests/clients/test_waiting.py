"""A stream that waits for its summary: comments keep it alive, and SDKs ignore them."""

import http.client
import json
import re
import time

import openai
import pytest

from harness import PATIENCE, Answers, Scripted, serving

CONFIG = """
[server]
data_dir = "data"

[guard]
clear_tools = false

[compaction]
auto = true
threshold = 0.5
model = "scripted/slow"
wait_ms = 30000

[providers.scripted]
base_url = "http://127.0.0.1:{port}/v1"
auth = "none"
profile = "openai"

[models."scripted/window-8k"]
context_length = 8192

[models."scripted/slow"]
context_length = 128000
"""

# Seconds; longer than the interval of the comments.
THINKS = 3.5


def slow(answers, _):
    """Fills in the request's summary block after a while."""
    text = json.dumps([one["content"] for one in answers.body["messages"]], ensure_ascii=False)
    block = re.findall(r'<summary key=\\"[^>]*>.*?</summary>', text, re.S)[-1]
    block = json.loads(f'"{block}"')
    time.sleep(THINKS)
    answers.say({"content": re.sub(r"<(\w+)>[^<]*</\1>", r"<\1>Forty ports were sounded.</\1>", block)})


@pytest.fixture(scope="module")
def waiting():
    Answers.model_slow = slow
    provider = Scripted()
    try:
        with serving(CONFIG.format(port=provider.port)) as url:
            yield url, provider
    finally:
        provider.stop()
        del Answers.model_slow


def history(tag):
    """A conversation beyond the window."""
    said = [{"role": "user", "content": f"Sound every port. {tag}"}]
    for number in range(180):
        said.append({"role": "assistant", "content": f"Port {number}: " + "four fathoms, sand. " * 12})
        said.append({"role": "user", "content": f"On to port {number + 1}."})
    return {"model": "scripted/window-8k", "stream": True, "user": tag, "messages": said}


def test_the_openai_sdk_reads_a_stream_that_waited(waiting):
    url, provider = waiting
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=PATIENCE)
    begun = time.monotonic()
    raw = client.chat.completions.with_raw_response.create(**history("sdk"))
    assert "compacting" in raw.headers["x-plimsoll-actions"]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in raw.parse() if chunk.choices)
    assert text == "Fair winds, and a following sea. 顺风。"
    assert time.monotonic() - begun >= THINKS
    sent = [one for one in provider.of("sdk") if one["body"]["model"] == "window-8k"]
    assert "Forty ports were sounded." in sent[-1]["raw"].decode()


def test_a_waiting_stream_is_kept_alive_by_comments(waiting):
    url, _ = waiting
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=PATIENCE)
    connection.request("POST", "/v1/chat/completions", json.dumps(history("raw")),
                       {"content-type": "application/json"})
    answer = connection.getresponse()
    lines = answer.read().decode().splitlines()
    connection.close()
    first = next(at for at, line in enumerate(lines) if line.startswith("data: "))
    comments = [line for line in lines[:first] if line.startswith(":")]
    assert answer.status == 200 and comments, lines[: first + 1]
    assert lines[-2] == "data: [DONE]"
