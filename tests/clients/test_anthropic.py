"""The anthropic SDK before a provider that speaks Messages."""

import base64
import json
import uuid

import anthropic
import pytest
from anthropic import Anthropic

from harness import OWN, PATIENCE, TEXT, messages_provider, wait_until

STEPS = 12
LOOKUP = {
    "name": "lookup",
    "description": "Looks a number up",
    "input_schema": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
}
THINKING = {"type": "enabled", "budget_tokens": 1_024}


@pytest.fixture(scope="module")
def provider():
    with messages_provider() as running:
        yield running


@pytest.fixture(scope="module", params=[True, False], ids=["recovery", "no-recovery"])
def recovery(request):
    return request.param


@pytest.fixture(scope="module")
def client(provider, recovery):
    with provider.proxy(recovery) as url, connect(url) as client:
        yield client


def connect(url):
    return Anthropic(base_url=url, api_key="scripted", max_retries=0, timeout=PATIENCE)


class Task:
    """A plan of steps, and the client's side of it."""

    def __init__(self, steps=STEPS, **fields):
        self.name = f"task{uuid.uuid4().hex[:8]}"
        self.steps = [[["lookup", {"number": number}]] for number in range(steps)]
        self.steps[1:2] = [[["lookup", {"number": 1}], ["lookup", {"number": 100}]]] if steps > 1 else []
        self.asked = []
        plan = json.dumps({"task": self.name, "steps": self.steps})
        self.body = {
            "model": "plan-16k", "max_tokens": 2_048, "tools": [LOOKUP],
            "system": [{"type": "text", "text": "You know the log.", "cache_control": {"type": "ephemeral"}}],
            "messages": [{"role": "user", "content": f"Look up every number. <plan>{plan}</plan>"}], **fields}

    def run(self, client, streamed=False):
        """The loop of the SDK's examples; its last answer."""
        for _ in range(len(self.steps) + 1):
            answer = ask(client, self.body, streamed)
            self.body["messages"].append({"role": "assistant", "content": answer.content})
            calls = [one for one in answer.content if one.type == "tool_use"]
            assert answer.stop_reason == ("tool_use" if calls else "end_turn")
            if not calls:
                return answer
            self.body["messages"].append({"role": "user", "content": [self.result(one) for one in calls]})
        raise AssertionError("the loop does not end")

    def result(self, call):
        assert call.name == "lookup"
        number = call.input["number"]
        self.asked.append(number)
        line = f"entry {number} of the log: wind and rain, a rising tide\n"
        return {"type": "tool_result", "tool_use_id": call.id, "content": line * 100}

    def check(self, provider, answer, recovery):
        assert answer.content[-1].text == f"{TEXT} Done after {len(self.steps)} steps."
        assert self.asked == [given["number"] for step in self.steps for _, given in step]
        seen = provider.seen(self.name)
        assert [one["error"] for one in seen if one["error"]] == []
        sent = [one["tokens"] for one in seen]
        assert any(after < before for before, after in zip(sent, sent[1:], strict=False)), sent
        own = [one for one in seen if "toolu_own" in one["raw"]]
        assert bool(own) == recovery
        tools = ["lookup", *OWN] if recovery else ["lookup"]
        assert set(seen[-1]["tools"]) in ({*tools}, {"lookup", "recall"})
        assert "toolu_own" not in json.dumps(self.body["messages"], default=vars)


def ask(client, body, streamed):
    if not streamed:
        return client.messages.create(**body)
    with client.messages.stream(**body) as stream:
        for _ in stream:
            pass
        return stream.get_final_message()


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("fields", [{}, {"thinking": THINKING}], ids=["plain", "thinking"])
def test_a_loop_of_tools(client, provider, recovery, fields, streamed):
    task = Task(**fields)
    answer = task.run(client, streamed)
    task.check(provider, answer, recovery)
    assert (answer.content[0].type == "thinking") == bool(fields)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_a_plain_answer(client, streamed):
    answer = ask(client, Task(0).body, streamed)
    assert answer.content[0].text == f"{TEXT} Done after 0 steps."
    assert (answer.role, answer.stop_reason, answer.usage.output_tokens) == ("assistant", "end_turn", 17)
    assert answer.usage.input_tokens > 0 and answer.usage.cache_read_input_tokens > 0


def test_headers_report_health(client):
    raw = client.messages.with_raw_response.create(**Task(0).body)
    usage = raw.parse().usage
    assert raw.headers["x-plimsoll-health"] == "healthy"
    assert raw.headers["x-plimsoll-context-limit"] == "16000"
    assert int(raw.headers["x-plimsoll-prompt-tokens"]) == usage.input_tokens + usage.cache_read_input_tokens


def test_an_image_reaches_the_provider(client, provider):
    task = Task(0)
    pixel = base64.b64encode(bytes(range(256)) * 8).decode()
    source = {"type": "base64", "media_type": "image/png", "data": pixel}
    content = [{"type": "text", "text": task.body["messages"][0]["content"]}, {"type": "image", "source": source}]
    task.body["messages"] = [{"role": "user", "content": content}]
    ask(client, task.body, False)
    assert json.loads(provider.seen(task.name)[0]["raw"])["messages"][0]["content"] == content


def test_tokens_are_counted(client, provider):
    task = Task(0)
    body = {key: value for key, value in task.body.items() if key != "max_tokens"}
    counted = client.messages.count_tokens(**body).input_tokens
    ask(client, task.body, False)
    assert counted == provider.seen(task.name)[0]["tokens"]


@pytest.mark.parametrize("status, error", [
    (401, anthropic.AuthenticationError), (403, anthropic.PermissionDeniedError), (404, anthropic.NotFoundError),
    (429, anthropic.RateLimitError), (500, anthropic.InternalServerError), (529, anthropic.InternalServerError)])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_errors_of_the_provider(client, status, error, streamed):
    with pytest.raises(error) as raised:
        ask(client, {**Task(0).body, "model": f"status-{status}"}, streamed)
    assert raised.value.status_code == status
    assert raised.value.body["error"]["message"] == f"scripted {status}"
    assert raised.value.response.headers.get("retry-after") == ("7" if status == 429 else None)


def test_a_wrong_key_is_the_providers_error(client):
    with pytest.raises(anthropic.AuthenticationError, match="invalid x-api-key"):
        ask(client.with_options(api_key="wrong"), Task(0).body, False)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_a_prompt_that_cannot_fit(client, streamed):
    body = Task(0).body
    body["messages"][0]["content"] += " wind and rain" * 20_000
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > 16000 maximum") as raised:
        ask(client, body, streamed)
    assert raised.value.body["error"]["type"] == "invalid_request_error"


def test_an_error_of_the_proxy_has_the_shape_of_messages(client):
    headers = {"content-type": "application/json"}
    with pytest.raises(anthropic.BadRequestError) as raised:
        client.post("/v1/messages", content=b"{", cast_to=object, options={"headers": headers})
    assert raised.value.body["type"] == "error"
    assert raised.value.body["error"]["type"] == "invalid_request_error"


def test_an_aborted_stream_leaves_the_provider(client, provider):
    task = Task(0)
    with client.messages.stream(**{**task.body, "model": "drip"}) as stream:
        assert next(iter(stream.text_stream)) == "first"
    wait_until(lambda: provider.seen(task.name)[0]["closed"], "the provider saw the client leave")
