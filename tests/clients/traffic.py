"""Requests after which no graph of the dashboard is empty: answers, errors, cuts, prompts of recovery, summaries."""

import json
from http.client import HTTPException

from harness import CITIES, fetch, free_port

CONFIG = """
[server]
data_dir = "data"

[providers.scripted]
base_url = "http://127.0.0.1:{port}/v1"
auth = "none"
profile = "openai"
ask_models = false
models = ["text", "status-*", "broken", "overflow-*"]

# Refuses the configured key.
[providers.locked]
base_url = "http://127.0.0.1:{port}/v1"
api_key_env = "LOCKED_KEY"
profile = "openai"
ask_models = false

# Nobody listens there.
[providers.gone]
base_url = "http://127.0.0.1:{closed}/v1"
auth = "none"
breaker_failures = 1
breaker_open_ms = 600000

[models."gone/text"]
fallback = ["scripted/text"]

[models."scripted/overflow-3000"]
context_length = 8192

[models."scripted/recall"]
context_length = 8192

[models."scripted/recovery-clear"]
context_length = 16384
optimal_max_tokens = 7200
critical_max_tokens = 8600

[models."simulated/plimsoll-8k"]
context_length = 8192

[responses]
compaction = "answer"

[retry]
max_retries = 1
base_delay_ms = 1
max_delay_ms = 100
"""

TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "The weather at sea", "parameters": {"type": "object", "properties": {}}}}]


def configuration(provider):
    """The settings and the environment of a proxy before a scripted provider."""
    return CONFIG.format(port=provider.port, closed=free_port()), {"LOCKED_KEY": "unused"}


def post(proxy, path, body, key=None, headers=None):
    """The answer; `None` for an error, or an answer that broke off."""
    try:
        answer = fetch(f"{proxy}/v1/{path}", key, body, headers)
    except (HTTPException, OSError):
        return None
    return answer if body.get("stream") else json.loads(answer)


def said(text, role="user"):
    return {"role": role, "content": text}


def rounds(count, words, task="Watch the sea."):
    """A task, and so many calls of a tool with results of so many words."""
    messages = [said(task)]
    for nth in range(count):
        call = {"id": f"call_{nth}", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"call_{nth}", "content": f"wave {nth} " * words})
    return messages


def make_traffic(proxy, turn):
    """`turn` is a word that makes the conversations new."""
    def chat(model, messages=None, headers=None, **more):
        body = {"model": model, "messages": messages or [said(f"Ahoy {turn}")], **more}
        return post(proxy, "chat/completions", body, headers=headers)

    task = f"Watch the sea {turn}."
    assert chat("scripted/text") and chat("scripted/text", stream=True)
    assert chat("gone/text")
    for refused in ("scripted/status-500", "scripted/status-429", "locked/status-401", "gone/other"):
        assert chat(refused) is None, refused
    assert chat("scripted/broken", stream=True) is None
    # Accepted when it was cut once more; and never.
    assert chat("scripted/overflow-3000", rounds(20, 200, task))
    assert chat("scripted/overflow-1", rounds(2, 200, task)) is None
    # One result is truncated, old ones are cleared, and whole rounds left out.
    cut = rounds(40, 100, task) + rounds(1, 9_000)[1:]
    assert chat("simulated/plimsoll-8k", cut, tools=TOOLS, max_tokens=7_000)
    assert chat("scripted/recall", rounds(60, 100, task), tools=TOOLS)
    compact = {"model": "simulated/plimsoll-8k", "input": [said(task)]}
    assert post(proxy, "responses/compact", compact)
    watch(chat, turn)
    # The last: its summary is made after the answer.
    summarise(chat, turn)


def watch(chat, turn):
    """A session with tools that goes on in new courses."""
    messages = [said("Tell me the weather of every harbour. " + "Mind the tides and the winds. " * 1_100)]
    for _ in CITIES:
        answer = chat("scripted/recovery-clear", messages, tools=TOOLS, user=turn)["choices"][0]["message"]
        messages.append(answer)
        for call in answer.get("tool_calls") or []:
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": "Fair."})


def summarise(chat, turn):
    """A conversation past the threshold."""
    messages = []
    for nth in range(12):
        messages += [said(f"Watch the wave {nth}{turn}. " * 250), said("It rolls. " * 50, "assistant")]
    messages.append(said("And now?"))
    assert chat("simulated/plimsoll-32k", messages, {"x-plimsoll-auto-compact": "on"})
