"""The first settings of README.md, before a provider of each format."""

import json
import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from harness import PATIENCE, TEXT, Scripted, messages_provider, serving
from test_claude_code import claude_code, starts

README = Path(__file__).resolve().parents[2] / "README.md"


def settings(ports):
    """The block of settings, with these providers in the place of the real ones."""
    block = re.search(r"```toml\n(.*?)```", README.read_text(), re.DOTALL)[1]
    for name, port in ports.items():
        # The profile of a real provider follows from its host.
        section = f'[providers.{name}]\nbase_url = "https://api.{name}.com/v1"\n'
        assert section in block
        block = block.replace(section, f'[providers.{name}]\nbase_url = "http://127.0.0.1:{port}/v1"\nprofile = "{name}"\n')
    return block


@pytest.fixture(scope="module")
def both():
    """The proxy before both providers: its address, and the provider of each format."""
    openai = Scripted()
    with messages_provider() as anthropic:
        ports = {"openai": openai.port, "anthropic": anthropic.port}
        with serving(settings(ports), {"OPENAI_API_KEY": "the-key-of-the-proxy"}) as url:
            yield url, openai, anthropic
    openai.stop()


def ask(url, path, model, headers=None):
    """The status, the headers and the JSON of an answer."""
    body = {"model": model, "user": model, "max_tokens": 500, "messages": [{"role": "user", "content": "Ahoy"}]}
    if path == "/v1/messages":
        del body["user"]
    headers = {"content-type": "application/json", **(headers or {})}
    request = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, answer.headers, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, error.headers, json.load(error)


@pytest.mark.parametrize("model", ["text", "openai/text"])
def test_chat_completions_have_the_key_of_the_proxy(both, model):
    url, openai, _ = both
    status, headers, answer = ask(url, "/v1/chat/completions", model)
    assert (status, headers["x-plimsoll-provider"]) == (200, "openai")
    assert answer["choices"][0]["message"]["content"] == TEXT
    assert openai.last(model)["headers"]["authorization"] == "Bearer the-key-of-the-proxy"


@pytest.mark.parametrize("model", ["claude-opus-5-5", "anthropic/claude-opus-5-5"])
def test_messages_have_the_key_of_the_client(both, model):
    client = {"x-api-key": "scripted", "anthropic-version": "2023-06-01"}
    status, headers, answer = ask(both[0], "/v1/messages", model, client)
    assert (status, headers["x-plimsoll-provider"]) == (200, "anthropic")
    assert answer["content"][0]["type"] == "text"


def test_a_model_of_the_other_format_is_refused(both):
    status, headers, _ = ask(both[0], "/v1/messages", "text")
    assert (status, headers["x-plimsoll-error"]) == (400, "format_not_spoken")


def test_claude_code_answers(both, tmp_path):
    if reason := starts():
        pytest.skip(reason)
    (tmp_path / "work").mkdir()
    end = claude_code(tmp_path, both[0], "Ahoy", "claude-opus-5-5")[-1]
    assert (end["type"], end["subtype"], end["is_error"]) == ("result", "success", False)
