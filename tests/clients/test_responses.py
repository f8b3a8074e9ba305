"""The openai SDK, LangChain and openai-agents in their Responses mode, before a provider that speaks Responses."""

import asyncio
import base64
import json
import uuid

import openai
import pytest
from agents import Agent, OpenAIResponsesModel, Runner, function_tool
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI, OpenAI

from harness import OWN, PATIENCE, TEXT, responses_provider, wait_until

STEPS = 12
LOOKUP = {
    "type": "function", "name": "lookup", "description": "Looks a number up", "strict": False,
    "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
}
REASONING = {"store": False, "reasoning": {"effort": "low"}, "include": ["reasoning.encrypted_content"]}
both = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


@pytest.fixture(scope="module")
def provider():
    with responses_provider() as running:
        yield running


@pytest.fixture(scope="module", params=[True, False], ids=["recovery", "no-recovery"])
def recovery(request):
    return request.param


@pytest.fixture(scope="module")
def url(provider, recovery):
    with provider.proxy(recovery) as url:
        yield f"{url}/v1"


@pytest.fixture(scope="module")
def client(url):
    with OpenAI(base_url=url, api_key="scripted", max_retries=0, timeout=PATIENCE) as client:
        yield client


class Task:
    """A plan of steps, and the client's side of it."""

    def __init__(self, steps=STEPS, **fields):
        self.name = f"task{uuid.uuid4().hex[:8]}"
        self.steps = [[["lookup", {"number": number}]] for number in range(steps)]
        self.steps[1:2] = [[["lookup", {"number": 1}], ["lookup", {"number": 100}]]] if steps > 1 else []
        self.asked = []
        plan = json.dumps({"task": self.name, "steps": self.steps})
        self.text = f"Look up every number. <plan>{plan}</plan>"
        self.body = {"model": "plan-16k", "tools": [LOOKUP], "instructions": "You know the log.",
                     "input": [{"role": "user", "content": self.text}], **fields}

    def run(self, client, streamed=False):
        """The loop of the SDK's examples; its last answer."""
        for _ in range(len(self.steps) + 1):
            answer = ask(client, self.body, streamed)
            self.body["input"] += answer.output
            calls = [one for one in answer.output if one.type == "function_call"]
            if not calls:
                return answer
            for call in calls:
                output = self.lookup(json.loads(call.arguments)["number"])
                self.body["input"].append({"type": "function_call_output", "call_id": call.call_id, "output": output})
        raise AssertionError("the loop does not end")

    def lookup(self, number):
        self.asked.append(number)
        return f"entry {number} of the log: wind and rain, a rising tide\n" * 100

    def check(self, provider, said, recovery):
        assert said.endswith(f"{TEXT} Done after {len(self.steps)} steps.")
        assert sorted(self.asked) == sorted(given["number"] for step in self.steps for _, given in step)
        seen = provider.seen(self.name)
        assert [one["error"] for one in seen if one["error"]] == []
        sent = [one["tokens"] for one in seen]
        assert any(after < before for before, after in zip(sent, sent[1:], strict=False)), sent
        own = [one for one in seen if "call_own" in one["raw"]]
        assert bool(own) == recovery
        tools = {"lookup", *OWN} if recovery else {"lookup"}
        assert set(seen[-1]["tools"]) in (tools, {"lookup", "recall"})


def ask(client, body, streamed):
    if not streamed:
        return client.responses.create(**body)
    numbers = []
    with client.responses.stream(**body) as stream:
        numbers = [event.sequence_number for event in stream]
        assert numbers == list(range(len(numbers)))
        return stream.get_final_response()


@both
@pytest.mark.parametrize("fields", [{}, REASONING], ids=["plain", "reasoning"])
def test_a_loop_of_tools(client, provider, recovery, fields, streamed):
    task = Task(**fields)
    answer = task.run(client, streamed)
    task.check(provider, answer.output_text, recovery)
    assert (answer.output[0].type == "reasoning") == bool(fields)
    assert "call_own" not in json.dumps(task.body["input"], default=lambda one: one.model_dump())


@both
def test_a_plain_answer(client, streamed):
    answer = ask(client, Task(0).body, streamed)
    assert answer.output_text == f"{TEXT} Done after 0 steps."
    assert (answer.status, answer.usage.output_tokens) == ("completed", 17)
    assert answer.usage.input_tokens > 0 and answer.usage.input_tokens_details.cached_tokens > 0


def test_a_text_as_input(client):
    assert client.responses.create(model="plan-16k", input="Ahoy").output_text == TEXT


def test_headers_report_health(client):
    raw = client.responses.with_raw_response.create(**Task(0).body)
    assert raw.headers["x-plimsoll-health"] == "healthy"
    assert raw.headers["x-plimsoll-context-limit"] == "16000"
    assert int(raw.headers["x-plimsoll-prompt-tokens"]) == raw.parse().usage.input_tokens


def test_structured_output_and_an_image_reach_the_provider(client, provider):
    form = {"type": "json_schema", "name": "log", "schema": {"type": "object"}, "strict": False}
    task = Task(0, text={"format": form})
    pixel = base64.b64encode(bytes(range(256)) * 8).decode()
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{pixel}", "detail": "auto"}
    content = [{"type": "input_text", "text": task.text}, image]
    task.body["input"] = [{"role": "user", "content": content}]
    ask(client, task.body, False)
    sent = json.loads(provider.seen(task.name)[0]["raw"])
    assert sent["input"][0]["content"] == content and sent["text"] == {"format": form}


def test_tokens_are_counted(client, provider):
    task = Task(0)
    counted = client.responses.input_tokens.count(**task.body).input_tokens
    ask(client, task.body, False)
    assert counted == provider.seen(task.name)[-1]["tokens"]


@both
@pytest.mark.parametrize(("status", "error"), [
    (401, openai.AuthenticationError), (403, openai.PermissionDeniedError), (404, openai.NotFoundError),
    (429, openai.RateLimitError), (500, openai.InternalServerError)])
def test_errors_of_the_provider(client, status, error, streamed):
    with pytest.raises(error) as raised:
        ask(client, {**Task(0).body, "model": f"status-{status}"}, streamed)
    assert raised.value.status_code == status
    assert raised.value.body["message"] == f"scripted {status}"
    assert raised.value.response.headers.get("retry-after") == ("7" if status == 429 else None)


@both
def test_a_prompt_that_cannot_fit(client, streamed):
    body = Task(0).body
    body["input"][0]["content"] += " wind and rain" * 20_000
    with pytest.raises(openai.BadRequestError, match="exceeds the context window") as raised:
        ask(client, body, streamed)
    assert raised.value.code == "context_length_exceeded"


def test_an_aborted_stream_leaves_the_provider(client, provider):
    task = Task(0)
    with client.responses.stream(**{**task.body, "model": "drip"}) as stream:
        assert next(event.delta for event in stream if event.type == "response.output_text.delta") == "first"
    wait_until(lambda: provider.seen(task.name)[0]["closed"], "the provider saw the client leave")


@both
def test_openai_agents(url, provider, recovery, streamed):
    task = Task()
    lookup = function_tool(task.lookup, name_override="lookup", strict_mode=False)

    async def run():
        model = OpenAIResponsesModel("plan-16k", AsyncOpenAI(base_url=url, api_key="scripted", max_retries=0))
        agent = Agent(name="harbourmaster", model=model, tools=[lookup])
        if not streamed:
            return await Runner.run(agent, task.text, max_turns=2 * STEPS)
        running = Runner.run_streamed(agent, task.text, max_turns=2 * STEPS)
        async for _ in running.stream_events():
            pass
        return running

    task.check(provider, asyncio.run(run()).final_output, recovery)


@both
def test_langchain(url, provider, recovery, streamed):
    task = Task()

    @tool
    def lookup(number: int) -> str:
        """An entry of the log."""
        return task.lookup(number)

    model = ChatOpenAI(base_url=url, api_key="scripted", model="plan-16k", max_retries=0, timeout=PATIENCE,
                       use_responses_api=True).bind_tools([lookup])
    messages = [HumanMessage(task.text)]
    for _ in range(2 * STEPS):
        if streamed:
            first, *rest = model.stream(messages)
            answer = sum(rest, start=first)
        else:
            answer = model.invoke(messages)
        messages.append(answer)
        if not answer.tool_calls:
            break
        messages += [lookup.invoke(call) for call in answer.tool_calls]
    task.check(provider, answer.text, recovery)
