"""Clients that nothing but `plimsoll run` or `plimsoll connect --write` points at the proxy. SDKs and frameworks have the
environment that `run` gives any program."""

import os
import sys

import pytest

from harness import bare_providers, messages_provider
from setups import NODE_MODULES, OWN_MODELS, TOLD, Reading, play, play_library, set_up

NODE = NODE_MODULES / ".bin/node"
WINDOW = 16_384
OF_OPENAI = {
    "OpenAI SDK for Python": [sys.executable, "openai_agent.py"],
    "OpenAI SDK for Node": [NODE, "openai-agent.cjs"],
    "LangChain": [sys.executable, "langchain_agent.py"],
    "pydantic-ai": [sys.executable, "pydantic_agent.py"],
    "Vercel AI SDK": [NODE, "vercel-agent.cjs"],
}
OF_ANTHROPIC = {
    "Anthropic SDK for Python": [sys.executable, "anthropic_agent.py"],
    "Anthropic SDK for Node": [NODE, "anthropic-agent.cjs"],
}


@pytest.mark.parametrize("name", OF_OPENAI)
def test_a_library_of_openai(tmp_path, name):
    with bare_providers(WINDOW) as (two, config):
        play_library(*OF_OPENAI[name], tmp_path, two, config, "one/model-a", "one-key")


@pytest.mark.parametrize("name", OF_ANTHROPIC)
def test_a_library_of_anthropic(tmp_path, name):
    with messages_provider() as provider:
        play_library(*OF_ANTHROPIC[name], tmp_path, provider, provider.settings(), "plan-16k", "scripted")


def play_pi(way, home, provider, config, model, key, told=None):
    task = Reading(home / "work", "path")
    with set_up(way, "pi", home, config, model, told) as before:
        name = f"plimsoll/{model}" if way == "connect" else model
        command = [*before, NODE.with_name("pi"), "--print", "--no-session", "--model", name, task.text]
        said = play(command, home, cwd=home / "work", PATH=f"{NODE.parent}:{os.environ['PATH']}", PI_OFFLINE="1",
                    PI_TELEMETRY="0", OPENAI_API_KEY=key, ANTHROPIC_API_KEY=key)
    task.check_read(provider, said)


@pytest.mark.parametrize(("provider", "model", "window"), OWN_MODELS)
def test_pi_by_run(tmp_path, provider, model, window):
    with provider(window) as running:
        play_pi("run", tmp_path, running, running.settings(), model, "scripted")


@pytest.mark.parametrize("told", TOLD)
def test_pi_by_connect(tmp_path, told):
    file = tmp_path / ".pi/agent/models.json"
    file.parent.mkdir(parents=True)
    file.write_bytes(b'{"providers": { "mine": {"baseUrl": "http://127.0.0.1:9",\n "apiKey": "x" }}}')
    with bare_providers(WINDOW) as (two, config):
        play_pi("connect", tmp_path, two, config, "two/model-b", "unused", told)
