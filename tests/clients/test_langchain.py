"""LangChain's ChatOpenAI with two providers behind one proxy."""

import openai
import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from contract import WORDS
from harness import PATIENCE


def model_of(place, **more):
    url, key, model, _ = place
    settings = {"base_url": url, "api_key": key, "model": model, "max_retries": 0, "timeout": PATIENCE}
    return ChatOpenAI(**{**settings, **more})


def test_an_answer_and_its_headers(place):
    answer = model_of(place, include_response_headers=True).invoke("Ahoy")
    assert answer.content == WORDS
    headers = answer.response_metadata["headers"]
    assert headers["x-plimsoll-provider"] == place[3]
    assert headers["x-plimsoll-health"] == "healthy"
    assert headers["x-plimsoll-prompt-tokens"] == str(answer.usage_metadata["input_tokens"])


def test_a_stream(place):
    pieces = list(model_of(place, stream_usage=True).stream("Ahoy"))
    assert "".join(piece.content for piece in pieces) == WORDS
    assert len(pieces) > 2
    assert sum((piece.usage_metadata or {}).get("input_tokens", 0) for piece in pieces) > 0


@pytest.mark.parametrize("streamed", [False, True])
def test_a_loop_past_the_window(two, place, task, streamed):
    @tool
    def lookup(number: int) -> str:
        """An entry of the log."""
        return task.lookup(number)

    model = model_of(place).bind_tools([lookup])
    messages = [HumanMessage(task.text)]
    for _ in range(2 * len(task.steps)):
        if streamed:
            first, *rest = model.stream(messages)
            answer = sum(rest, start=first)
        else:
            answer = model.invoke(messages)
        messages.append(answer)
        if not answer.tool_calls:
            break
        results = [lookup.invoke(call) for call in answer.tool_calls]
        assert all(isinstance(result, ToolMessage) for result in results)
        messages += results
    task.check(two, place[3], answer.content, streamed)


def test_errors_have_their_classes(place):
    with pytest.raises(openai.NotFoundError) as error:
        model_of(place, model=f"{place[2]}-of-nobody").invoke("hi")
    assert error.value.code == "model_not_found"
    if place[3] == "one":
        with pytest.raises(openai.AuthenticationError):
            model_of(place, api_key="wrong").invoke("hi")
