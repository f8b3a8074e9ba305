"""llama.cpp's server behind the proxy: its token counts, its window, its refusal.

The engine is started with a window of 4,096 tokens. One name for its model claims 128,000, as a config
that is out of date would; another claims nothing, so that the engine is asked.
"""

import json
import os
import subprocess
import urllib.error
import urllib.request
from contextlib import contextmanager

import openai
import pytest
from openai import OpenAI

from contract import LOOKUP, user
from harness import PATIENCE, free_port, serving, wait_until

WINDOW = 4_096
KEY = "engine-key"
# The engine accepts any model name, and lists one.
CLAIMED, ASKED = "llama/claimed", "llama/noise"
CONFIG = """
[server]
data_dir = "data"

[providers.llama]
base_url = "http://127.0.0.1:{port}/v1"
api_key_env = "ENGINE_KEY"
profile = "template"

[models."llama/claimed"]
context_length = 128000
"""


class Engine:
    def __init__(self, port):
        self.port = port

    def call(self, path, body=None, key=KEY):
        """Status and JSON of the engine's own answer."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def count(self, messages):
        """Tokens of a prompt by the engine's template and vocabulary."""
        _, prompt = self.call("/apply-template", {"messages": messages})
        body = {"content": prompt["prompt"], "add_special": True, "parse_special": True}
        return len(self.call("/tokenize", body)[1]["tokens"])


@contextmanager
def running_engine(log):
    port = free_port()
    flags = ["--ctx-size", WINDOW, "--parallel", 1, "--threads", 2, "--fit", "off", "--no-ui", "--jinja",
             "--offline", "--alias", "noise", "--api-key", KEY, "--host", "127.0.0.1", "--port", port]
    command = [os.environ["LLAMA_SERVER"], "--model", os.environ["LLAMA_MODEL"], *map(str, flags)]
    with open(log, "wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            engine = Engine(port)
            wait_until(lambda: process.poll() is not None or healthy(engine), "the engine is ready", 2 * PATIENCE)
            assert process.poll() is None, log.read_text()
            yield engine
        finally:
            process.kill()


def healthy(engine):
    try:
        return engine.call("/health")[0] == 200
    except OSError:
        return False


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    with running_engine(tmp_path_factory.mktemp("engine") / "log") as running:
        yield running


@pytest.fixture
def client(engine):
    """A proxy for each test, so that none has what another has learnt."""
    with serving(CONFIG.format(port=engine.port), {"ENGINE_KEY": KEY}) as url:
        with OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=2 * PATIENCE) as one:
            yield one


def ask(client, streamed, **request):
    """Headers, text and usage of an answer."""
    request = {"max_tokens": 8, "temperature": 0, **request}
    raw = client.chat.completions.with_raw_response
    if not streamed:
        answer = raw.create(**request)
        done = answer.parse()
        return answer.headers, done.choices[0].message.content, done.usage
    answer = raw.create(**request, stream=True, stream_options={"include_usage": True})
    *chunks, last = answer.parse()
    assert all(chunk.choices for chunk in chunks) and not last.choices
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    return answer.headers, said, last.usage


TOO_LONG = "wind and rain, a rising tide; " * 1_000


@pytest.mark.parametrize("streamed", [False, True])
def test_the_engine_refuses_with_both_numbers(engine, streamed):
    """The refusal that the proxy reads: a 400 with both numbers, before any stream begins."""
    body = {"model": "model", "messages": [user(TOO_LONG)], "stream": streamed}
    status, said = engine.call("/v1/chat/completions", body)
    print(status, json.dumps(said))
    assert status == 400
    assert said["error"]["type"] == "exceed_context_size_error"
    assert said["error"]["n_ctx"] == WINDOW
    assert said["error"]["n_prompt_tokens"] == engine.count([user(TOO_LONG)]) > WINDOW


def test_health_is_of_the_engines_token_count(engine, client):
    messages = [{"role": "system", "content": "You are a forecaster."}, user("Wind? 顺风。 " * 40)]
    counted = engine.count(messages)
    headers, said, usage = ask(client, False, model=CLAIMED, messages=messages)
    assert said
    assert usage.prompt_tokens == counted
    assert headers["x-plimsoll-prompt-tokens"] == str(counted)
    assert headers["x-plimsoll-hard-util"] == f"{counted / 128_000:.3f}"
    assert headers["x-plimsoll-health"] == "healthy"


def test_a_stream_has_the_engines_usage(engine, client):
    messages = [user("Tell me of the sea. " * 20)]
    # With tools: a short request without tools is taken for a title request, and not remembered.
    request = {"model": CLAIMED, "messages": messages, "tools": [LOOKUP]}
    _, whole, asked = ask(client, False, **request)
    _, said, usage = ask(client, True, **request)
    assert said == whole
    assert usage.prompt_tokens == asked.prompt_tokens
    # Tokens from its cache are included.
    assert 0 < usage.prompt_tokens_details.cached_tokens <= usage.prompt_tokens
    # The next request's headers have the stream's health.
    messages += [{"role": "assistant", "content": said}, user("And then?")]
    headers, _, _ = ask(client, True, **request)
    assert headers["x-plimsoll-health-from"] == "previous"
    assert headers["x-plimsoll-health"] == "healthy"
    assert headers["x-plimsoll-prompt-tokens"] == str(usage.prompt_tokens)


def test_a_client_that_refuses_usage_gets_none(client):
    stream = client.chat.completions.create(
        model=CLAIMED, messages=[user("Ahoy")], max_tokens=8, temperature=0, stream=True
    )
    chunks = list(stream)
    assert all(chunk.choices and not chunk.usage for chunk in chunks)


def test_the_window_is_asked_from_the_engine(client):
    """Without a configured window the one in the engine's model list holds."""

    def limit():
        headers, _, _ = ask(client, False, model=ASKED, messages=[user("Ahoy")])
        return headers["x-plimsoll-context-limit"] == str(WINDOW)

    wait_until(limit, "the window in the engine's list of models is used")


def test_a_wrong_key_is_the_engines_own_error(engine):
    with serving(CONFIG.format(port=engine.port), {"ENGINE_KEY": "wrong"}) as url:
        client = OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=PATIENCE)
        with client, pytest.raises(openai.AuthenticationError) as error:
            ask(client, False, model=CLAIMED, messages=[user("Ahoy")])
    assert error.value.type == "authentication_error"


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("model", [CLAIMED, ASKED])
def test_no_error_reaches_a_conversation_that_outgrows_the_window(engine, client, model, streamed):
    """An agent's history, step by step, far beyond the engine's window."""
    messages = [{"role": "system", "content": "You are a forecaster."}, user("Compare all entries.")]
    refitted, cut = 0, 0
    for number in range(24):
        call = {"name": "lookup", "arguments": json.dumps({"number": number})}
        calls = [{"id": f"call_{number}", "type": "function", "function": call}]
        result = f"entry {number}: wind and rain, a rising tide\n" * 60
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages.append({"role": "tool", "tool_call_id": f"call_{number}", "content": result})
        headers, _, usage = ask(client, streamed, model=model, messages=messages, tools=[LOOKUP])
        assert usage.prompt_tokens < WINDOW
        refitted += "refitted=" in headers["x-plimsoll-actions"]
        cut += "dropped=" in headers["x-plimsoll-actions"]
    assert engine.count(messages) > 3 * WINDOW
    assert cut > 5
    print(f"{model}, streamed: {streamed}: {refitted} requests were fitted again")
    if model == CLAIMED:
        # Only its refusal contains the window, which is known from then on.
        assert 0 < refitted <= 3
        assert headers["x-plimsoll-context-limit"] == str(WINDOW)


def test_an_overflow_that_cannot_be_fitted_is_context_length_exceeded(client):
    with pytest.raises(openai.BadRequestError) as error:
        ask(client, False, model=CLAIMED, messages=[user(TOO_LONG)])
    assert error.value.code == "context_length_exceeded"
    assert f"maximum context length is {WINDOW} tokens" in error.value.message
