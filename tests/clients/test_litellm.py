"""LiteLLM's SDK with two providers behind one proxy."""

import litellm
import pytest

import documents
from contract import LOOKUP, WORDS, user
from harness import PATIENCE

litellm.telemetry = False


def complete(place, messages, **more):
    url, key, model, _ = place
    settings = {"api_base": url, "api_key": key, "model": f"openai/{model}", "max_retries": 0, "timeout": PATIENCE}
    return litellm.completion(messages=messages, **{**settings, **more})


def test_an_answer_and_its_headers(place):
    answer = complete(place, [user("Ahoy")])
    assert answer.choices[0].message.content == WORDS
    headers = answer._hidden_params["additional_headers"]
    assert headers["llm_provider-x-plimsoll-provider"] == place[3]
    assert headers["llm_provider-x-plimsoll-health"] == "healthy"
    assert headers["llm_provider-x-plimsoll-prompt-tokens"] == str(answer.usage.prompt_tokens)


def test_a_stream(place):
    pieces = list(complete(place, [user("Ahoy")], stream=True))
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == WORDS
    assert len(pieces) > 2


@pytest.mark.parametrize("streamed", [False, True])
def test_a_loop_past_the_window(two, place, task, streamed):
    messages = [user(task.text)]
    for _ in range(2 * len(task.steps)):
        answer = complete(place, messages, tools=[LOOKUP], stream=streamed)
        if streamed:
            answer = litellm.stream_chunk_builder(list(answer), messages=messages)
        message = answer.choices[0].message
        task.answer_calls(message, messages)
        if not message.tool_calls:
            break
    task.check(two, place[3], message.content, streamed)


def test_errors_have_their_classes(place):
    with pytest.raises(litellm.NotFoundError):
        complete(place, [user("hi")], model=f"openai/{place[2]}-of-nobody")
    if place[3] == "one":
        with pytest.raises(litellm.AuthenticationError):
            complete(place, [user("hi")], api_key="wrong")


def test_the_example_of_the_documents(two):
    documents.check("LiteLLM", two.url)
