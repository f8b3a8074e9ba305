"""Tool loops with tool rounds by the proxy: no loop ends early, and the client sees only its own calls.
With the openai SDK, and with the loop of an agent framework.
"""

import asyncio
import json

import pytest
from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, RunConfig, Runner, function_tool
from openai import AsyncOpenAI

from harness import CITIES, OWN, PATIENCE, RECOVERY, TEXT, names

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
# Half of the window, so that the second request is past the optimal limit. What can go is no part of the task.
TASK = [
    {"role": "user", "content": "What is there to mind?"},
    {"role": "assistant", "content": "Mind the tides and the winds. " * 1_100},
    {"role": "user", "content": "Tell me the weather of every harbour."},
]
# Requests of a loop: one for each city, and the final text.
LOOP = len(CITIES) + 1


def check(provider, tag, how, answered):
    """Checks the upstream requests: injected tools, reminders, and every call with its result."""
    seen = [one["body"] for one in provider.of(tag)]
    assert answered == CITIES
    assert names(seen[0]) == ["weather"]
    assert set(names(seen[-1])) == {"weather", *OWN}
    rounds = 0 if how in ("before", "after") else 1
    assert len(seen) > LOOP if rounds else len(seen) == LOOP
    for body in seen:
        open_calls = []
        for message in body["messages"]:
            if message["role"] == "tool":
                open_calls.remove(message["tool_call_id"])
                continue
            assert not open_calls, "a call without its answer"
            open_calls = [one["id"] for one in message.get("tool_calls") or []]
        assert not open_calls
    said = json.dumps(seen[-1])
    assert "go on after request" in said
    if how == "clear":
        assert "own_1" not in said, "the first round belongs to the course before"
    else:
        assert "own_1" in said


def request(how, tag, messages):
    return {"model": f"scripted/recovery-{how}", "messages": messages, "tools": [WEATHER], "user": tag}


def answer_calls(message, messages, answered):
    """As in the examples of the SDK."""
    messages.append(message)
    for one in message.tool_calls or []:
        assert one.function.name == "weather"
        city = json.loads(one.function.arguments)["city"]
        answered.append(city)
        messages.append({"role": "tool", "tool_call_id": one.id, "content": f"Fair in {city}."})


@pytest.mark.parametrize("how", RECOVERY)
def test_a_loop_of_the_sdk(client, provider, tag, how):
    messages, answered = list(TASK), []
    for _ in range(LOOP):
        done = client.chat.completions.create(**request(how, tag, messages)).choices[0]
        answer_calls(done.message, messages, answered)
        assert done.finish_reason == ("tool_calls" if done.message.tool_calls else "stop")
        if not done.message.tool_calls:
            break
    assert done.message.content == TEXT
    check(provider, tag, how, answered)


@pytest.mark.parametrize("how", RECOVERY)
def test_a_streamed_loop_of_the_sdk(client, provider, tag, how):
    messages, answered = list(TASK), []
    for _ in range(LOOP):
        with client.chat.completions.stream(**request(how, tag, messages)) as stream:
            for _ in stream:
                pass
            done = stream.get_final_completion().choices[0]
        answer_calls(done.message, messages, answered)
        if not done.message.tool_calls:
            break
    assert done.message.content == TEXT
    check(provider, tag, how, answered)


def agent_of(base_url, how, tag, answered):
    @function_tool
    def weather(city: str) -> str:
        """The weather of a city."""
        answered.append(city)
        return f"Fair in {city}."

    client = AsyncOpenAI(base_url=base_url, api_key="unused", max_retries=0, timeout=PATIENCE)
    return Agent(
        name="harbourmaster",
        instructions="Ask for one harbour after the other.",
        tools=[weather],
        model=OpenAIChatCompletionsModel(f"scripted/recovery-{how}", client),
        model_settings=ModelSettings(extra_body={"user": tag}),
    )


# Only the proxy is contacted.
CONFIG = RunConfig(tracing_disabled=True)


def only_weather(result):
    calls = [one.raw_item.name for one in result.new_items if one.type == "tool_call_item"]
    assert calls == ["weather"] * len(CITIES)


@pytest.mark.parametrize("how", RECOVERY)
def test_the_loop_of_an_agent_framework(base_url, provider, tag, how):
    answered = []
    agent = agent_of(base_url, how, tag, answered)
    run = Runner.run(agent, TASK, max_turns=LOOP, run_config=CONFIG)
    result = asyncio.run(asyncio.wait_for(run, PATIENCE))
    assert result.final_output == TEXT
    only_weather(result)
    check(provider, tag, how, answered)


@pytest.mark.parametrize("how", RECOVERY)
def test_the_streamed_loop_of_an_agent_framework(base_url, provider, tag, how):
    answered = []
    agent = agent_of(base_url, how, tag, answered)

    async def run():
        result = Runner.run_streamed(agent, TASK, max_turns=LOOP, run_config=CONFIG)
        async for _ in result.stream_events():
            pass
        return result

    result = asyncio.run(asyncio.wait_for(run(), PATIENCE))
    assert result.final_output == TEXT
    only_weather(result)
    check(provider, tag, how, answered)
