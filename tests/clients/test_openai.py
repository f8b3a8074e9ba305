"""The openai SDK for Python against the running proxy: nothing but the base URL is changed."""

import asyncio
import json
import uuid

import openai
import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel

from contract import user
from harness import PATIENCE, TEXT, USAGE, wait_until

MODEL = "simulated/plimsoll-8k"
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


def text_of(stream):
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream)


# Completion and stream


def test_a_completion(client):
    done = client.chat.completions.create(model=MODEL, messages=[user("Where is the harbour?")])
    assert done.choices[0].finish_reason == "stop"
    assert len(done.choices[0].message.content) > 20
    assert done.usage.total_tokens == done.usage.prompt_tokens + done.usage.completion_tokens


def test_completion_of_a_scripted_provider(client, provider, tag):
    done = client.chat.completions.create(model="scripted/text", messages=[user("hi")], user=tag)
    assert done.choices[0].message.content == TEXT
    assert done.usage.prompt_tokens == USAGE["prompt_tokens"]
    assert done.usage.prompt_tokens_details.cached_tokens == 128
    seen = provider.last(tag)
    assert seen["body"]["model"] == "text"
    assert seen["body"]["messages"] == [user("hi")]
    assert "authorization" not in {name.lower() for name in seen["headers"]}
    assert not any(name.lower().startswith("x-plimsoll") for name in seen["headers"])


@pytest.mark.parametrize("model", [MODEL, "scripted/text"])
def test_stream_has_the_same_text_and_no_chunk_without_choices(client, model):
    request = {"model": model, "messages": [user("Tell me of the sea")]}
    whole = client.chat.completions.create(**request).choices[0].message.content
    with client.chat.completions.create(**request, stream=True) as stream:
        chunks = list(stream)
    assert all(chunk.choices for chunk in chunks)
    assert text_of(chunks) == whole
    assert chunks[-1].choices[0].finish_reason == "stop"


@pytest.mark.parametrize("model", [MODEL, "scripted/text"])
def test_stream_with_usage_asked_for(client, model):
    request = {"model": model, "messages": [user("Tell me of the sea")]}
    whole = client.chat.completions.create(**request)
    asked = {"stream": True, "stream_options": {"include_usage": True}}
    *chunks, last = client.chat.completions.create(**request, **asked)
    assert last.choices == []
    assert last.usage.prompt_tokens == whole.usage.prompt_tokens
    assert all(chunk.choices for chunk in chunks)
    assert text_of(chunks) == whole.choices[0].message.content


def test_the_provider_is_asked_for_usage_unless_the_client_refuses(client, provider, tag):
    request = {"model": "scripted/text", "messages": [user("hi")], "stream": True, "user": tag}
    assert text_of(client.chat.completions.create(**request)) == TEXT
    assert provider.last(tag)["body"]["stream_options"]["include_usage"] is True
    refused = {"stream_options": {"include_usage": False}}
    assert text_of(client.chat.completions.create(**request, **refused)) == TEXT
    assert provider.last(tag)["body"]["stream_options"]["include_usage"] is False


def test_the_stream_helper_of_the_sdk(client):
    with client.chat.completions.stream(model=MODEL, messages=[user("Tell me of the sea")]) as stream:
        said = "".join(event.delta for event in stream if event.type == "content.delta")
        assert said == stream.get_final_completion().choices[0].message.content


def test_many_requests_at_once(base_url):
    async def ask(client, number):
        messages = [user(f"Question {number}")]
        stream = await client.chat.completions.create(model=MODEL, messages=messages, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def all_of_them():
        async with AsyncOpenAI(base_url=base_url, api_key="unused", max_retries=0) as client:
            return await asyncio.wait_for(
                asyncio.gather(*(ask(client, number) for number in range(16))), PATIENCE
            )

    assert all(asyncio.run(all_of_them()))


def test_models_are_listed(client):
    names = {model.id for model in client.models.list()}
    assert "scripted/recovery-after" in names
    # Simulated models are listed only where no provider is configured.
    assert MODEL not in names


# Tools


def test_tool_round_trip(client, provider, tag):
    messages = [user("How is the weather in Bergen and in Porto?")]
    request = {"model": "scripted/tools", "tools": [WEATHER], "user": tag}
    asked = client.chat.completions.create(messages=messages, **request).choices[0]
    assert asked.finish_reason == "tool_calls"
    calls = asked.message.tool_calls
    assert [json.loads(call.function.arguments)["city"] for call in calls] == ["Bergen", "Porto"]
    messages.append(asked.message)
    for call in calls:
        messages.append({"role": "tool", "tool_call_id": call.id, "content": f"{call.id}: rain"})
    answer = client.chat.completions.create(messages=messages, **request).choices[0]
    assert answer.message.content == "It says: call_b: rain"
    assert [one["role"] for one in provider.last(tag)["body"]["messages"]] == [
        "user", "assistant", "tool", "tool",
    ]


def test_streamed_calls_arrive_whole(client):
    request = {"model": "scripted/tools", "tools": [WEATHER], "messages": [user("Weather?")]}
    with client.chat.completions.stream(**request) as stream:
        for _ in stream:
            pass
        calls = stream.get_final_completion().choices[0].message.tool_calls
    assert [json.loads(call.function.arguments)["city"] for call in calls] == ["Bergen", "Porto"]
    assert [call.id for call in calls] == ["call_a", "call_b"]


def test_an_agent_loop_comes_to_its_end(client):
    messages = [{"role": "system", "content": "You are a forecaster."}, user("Compare four cities.")]
    for _ in range(20):
        choice = client.chat.completions.create(
            model=MODEL, messages=messages, tools=[WEATHER]
        ).choices[0]
        if not choice.message.tool_calls:
            assert choice.message.content
            return
        messages.append(choice.message)
        for call in choice.message.tool_calls:
            assert "city" in json.loads(call.function.arguments)
            result = {"role": "tool", "tool_call_id": call.id, "content": "12 degrees"}
            messages.append(result)
    raise AssertionError("the simulated model never stopped calling tools")


# Images and structured output


def test_images_reach_the_provider_unchanged(client, provider, tag):
    data = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    content = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": data}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png?b=c&d", "detail": "low"}},
    ]
    messages = [{"role": "user", "content": content}]
    client.chat.completions.create(model="scripted/text", messages=messages, user=tag)
    assert provider.last(tag)["body"]["messages"] == messages
    done = client.chat.completions.create(model=MODEL, messages=messages)
    assert done.choices[0].message.content


class Harbour(BaseModel):
    name: str
    depth: float
    berths: list[int]


def test_structured_output(client, provider, tag):
    request = {"messages": [user("Describe a harbour")], "response_format": Harbour}
    parsed = client.chat.completions.parse(model="scripted/harbour", **request).choices[0].message.parsed
    assert isinstance(parsed, Harbour)
    with pytest.raises(Exception, match="(?i)json"):
        client.chat.completions.parse(model="scripted/text", user=tag, **request)
    sent = provider.last(tag)["body"]["response_format"]
    assert sent["json_schema"]["strict"] is True
    assert sent["json_schema"]["schema"]["required"] == ["name", "depth", "berths"]


# Headers


def test_headers_of_a_completion(client):
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=[user("Ahoy")])
    headers, usage = raw.headers, raw.parse().usage
    assert headers["x-plimsoll-session"]
    assert headers["x-plimsoll-health"] == "healthy"
    assert headers["x-plimsoll-health-from"] == "response"
    assert headers["x-plimsoll-prompt-tokens"] == str(usage.prompt_tokens)
    assert headers["x-plimsoll-context-limit"] == "8192"
    assert headers["x-plimsoll-hard-util"] == f"{usage.prompt_tokens / 8192:.3f}"
    assert float(headers["x-plimsoll-optimal-util"]) > 0
    assert headers["x-plimsoll-actions"] == "none"
    assert headers["x-plimsoll-provider"] == "simulated"
    assert headers["x-plimsoll-attempts"] == "1"
    assert "guard;dur=" in headers["server-timing"]


def test_a_continued_conversation_keeps_its_session(client):
    def ask(messages, **more):
        raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=messages, **more)
        return raw.headers, raw.parse()

    messages = [user(f"Session {uuid.uuid4()}")]
    first, answer = ask(messages)
    answered = {"role": "assistant", "content": answer.choices[0].message.content}
    second, _ = ask([*messages, answered, user("And then?")])
    other, _ = ask([user(f"Session {uuid.uuid4()}")])
    assert second["x-plimsoll-session"] == first["x-plimsoll-session"]
    assert other["x-plimsoll-session"] != first["x-plimsoll-session"]


def test_headers_of_a_stream_have_the_health_of_the_previous_answer(client):
    messages = [user(f"Stream {uuid.uuid4()}")]
    ask = client.chat.completions.with_raw_response.create
    first = ask(model=MODEL, messages=messages, stream=True)
    said = text_of(first.parse())
    assert first.headers["x-plimsoll-health"] == "unknown"
    assert first.headers["x-plimsoll-prompt-tokens"] == "unknown"
    messages += [{"role": "assistant", "content": said}, user("More")]
    second = ask(model=MODEL, messages=messages, stream=True)
    assert text_of(second.parse())
    assert second.headers["x-plimsoll-session"] == first.headers["x-plimsoll-session"]
    assert second.headers["x-plimsoll-health-from"] == "previous"
    assert second.headers["x-plimsoll-health"] == "healthy"
    assert int(second.headers["x-plimsoll-prompt-tokens"]) > 0


def test_provider_headers_pass(client):
    raw = client.chat.completions.with_raw_response.create(
        model="scripted/text", messages=[user("hi")]
    )
    assert raw.headers["x-scripted"] == "yes"
    assert raw.headers["x-plimsoll-provider"] == "scripted"
    assert raw.headers["x-plimsoll-prompt-tokens"] == "321"
    assert raw.headers["x-plimsoll-context-limit"] == "unknown"


# Errors


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (404, openai.NotFoundError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
    ],
)
def test_provider_errors_pass_unchanged(client, provider, tag, status, error, stream):
    with pytest.raises(error) as caught:
        client.chat.completions.create(
            model=f"scripted/status-{status}", messages=[user("hi")], stream=stream, user=tag
        )
    assert caught.value.status_code == status
    assert caught.value.code == f"code_{status}"
    assert caught.value.body["message"] == f"scripted {status}"
    assert caught.value.body["type"] == "scripted_error"
    if status == 429:
        assert caught.value.response.headers["retry-after"] == "7"
    assert len(provider.of(tag)) == 1, "the proxy does not retry by itself"


def test_the_sdk_retries_through_the_proxy(client, provider, tag):
    patient = client.with_options(max_retries=2)
    done = patient.chat.completions.create(
        model="scripted/flaky", messages=[user("hi")], user=tag
    )
    assert done.choices[0].message.content == TEXT
    assert len(provider.of(tag)) == 2


@pytest.mark.parametrize("model", ["nobody/nothing", "simulated/nothing", "nothing-at-all"])
def test_unknown_models_are_a_404(client, model):
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model=model, messages=[user("hi")])
    assert caught.value.code == "model_not_found"


def test_invalid_conversations_get_the_providers_error(client):
    orphan = {"role": "tool", "tool_call_id": "nobody", "content": "x"}
    with pytest.raises(openai.BadRequestError, match="messages with role 'tool' must be a response"):
        client.chat.completions.create(model=MODEL, messages=[user("hi"), orphan])


def test_an_overflow_that_cannot_be_fitted_is_context_length_exceeded(client):
    for extra in ({}, {"extra_headers": {"x-plimsoll-guard": "off"}}):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model=MODEL, messages=[user("tide " * 20_000)], **extra)
        assert caught.value.code == "context_length_exceeded"
        assert "This model's maximum context length is 8192 tokens" in caught.value.message


# Clients that disconnect


def test_a_timeout_closes_the_providers_request(client, provider, tag):
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.5).chat.completions.create(
            model="scripted/hang", messages=[user("hi")], user=tag
        )
    wait_until(lambda: provider.saw_close(tag), "the provider sees its client leave")


def test_an_aborted_stream_is_closed_at_the_provider(client, provider, tag):
    stream = client.chat.completions.create(
        model="scripted/drip", messages=[user("hi")], stream=True, user=tag
    )
    said = ""
    for chunk in stream:
        said += chunk.choices[0].delta.content or ""
        if said == "first":
            break
    assert not provider.saw_close(tag)
    stream.close()
    wait_until(lambda: provider.saw_close(tag), "the provider sees its client leave")


# A provider that always compresses


@pytest.mark.parametrize("stream", [False, True])
def test_an_unasked_compressed_answer_is_readable(client, provider, tag, stream):
    answer = client.chat.completions.with_raw_response.create(
        model="scripted/gzip", messages=[user("hi")], stream=stream, user=tag
    )
    headers = {name.lower(): value for name, value in provider.last(tag)["headers"].items()}
    assert headers["accept-encoding"] == "identity"
    if stream:
        said = "".join(chunk.choices[0].delta.content or "" for chunk in answer.parse())
    else:
        said = answer.parse().choices[0].message.content
        assert answer.headers["x-plimsoll-prompt-tokens"] == "321"
    assert said == TEXT


# The guard


def valid(messages):
    """Every call has its result, and every result its call, by position."""
    waiting = []
    for message in messages:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
        else:
            assert not waiting, f"unanswered: {waiting}"
            waiting = [call["id"] for call in message.get("tool_calls") or []]
    assert not waiting
    return True


def rounds(count, size):
    """An agent's history: repeated calls and results, with reused ids."""
    messages = []
    for number in range(count):
        arguments = json.dumps({"city": f"city {number}"})
        call = {"id": f"call_{number % 7}", "type": "function",
                "function": {"name": "weather", "arguments": arguments}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        result = (f"result {number}: " + "wind and rain, " * size)[: 12 * size]
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    return messages


def test_a_big_tool_result_is_truncated(client, provider, tag):
    big = "HEAD " + "".join(f"line {number} of the log\n" for number in range(8_000)) + "TAIL"
    messages = [user("Read the log"), *rounds(1, 4)]
    messages[-1]["content"] = big
    raw = client.chat.completions.with_raw_response.create(
        model="scripted/text", messages=messages, tools=[WEATHER], user=tag
    )
    sent = provider.last(tag)["body"]["messages"]
    assert sent[:-1] == messages[:-1]
    result = sent[-1]["content"]
    assert 1_000 < len(result) <= 50_000
    assert result.startswith("HEAD ") and result.endswith("TAIL")
    assert "characters truncated; recall id m" in result
    assert raw.headers["x-plimsoll-actions"] == "truncated=1"


@pytest.mark.parametrize("stream", [False, True])
def test_a_long_history_is_folded_and_valid(client, provider, tag, stream):
    system, task = {"role": "system", "content": "You are a forecaster."}, user("Compare all cities.")
    # More rounds than the window holds, even with cleared results.
    messages = [system, task, *rounds(400, 40)]
    raw = client.chat.completions.with_raw_response.create(
        model="scripted/window-8k", messages=messages, tools=[WEATHER], stream=stream, user=tag
    )
    raw.parse() if not stream else text_of(raw.parse())
    sent = provider.last(tag)["body"]["messages"]
    assert 4 < len(sent) < len(messages)
    # User and assistant alternate, so the preface is part of the task.
    assert sent[0] == system and sent[1]["role"] == "user"
    assert sent[1]["content"].startswith(f"{task['content']}\n\n[Note by the context guard")
    assert sent[-2:] == messages[-2:]
    assert valid(sent)
    assert "dropped=" in raw.headers["x-plimsoll-actions"]


def test_a_session_outgrows_the_window_of_the_simulated_model(client):
    """A session of several windows, with a provider that refuses what does not fit."""
    messages = [user("Compare all cities, one after another.")]
    folded = 0
    for step in rounds(150, 60)[::2]:
        call = step["tool_calls"][0]
        result = f"{call['function']['arguments']} " + "wind from the west, " * 40
        messages += [step, {"role": "tool", "tool_call_id": call["id"], "content": result}]
        raw = client.chat.completions.with_raw_response.create(
            model=MODEL, messages=messages, tools=[WEATHER], max_tokens=50
        )
        usage = raw.parse().usage
        assert usage.prompt_tokens + 50 <= 8192
        folded += "dropped=" in raw.headers["x-plimsoll-actions"]
    assert folded > 10
