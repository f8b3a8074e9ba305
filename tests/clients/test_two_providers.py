"""The openai SDK for Python with two providers behind one proxy."""

import openai
import pytest
from openai import OpenAI

from contract import LOOKUP, WORDS, user
from harness import PATIENCE



def client_of(place):
    url, key, _, _ = place
    return OpenAI(base_url=url, api_key=key, max_retries=0, timeout=PATIENCE)


def test_an_answer_and_its_headers(place):
    _, _, model, provider = place
    raw = client_of(place).chat.completions.with_raw_response
    answer = raw.create(model=model, messages=[user("Ahoy")])
    assert answer.parse().choices[0].message.content == WORDS
    assert answer.headers["x-plimsoll-provider"] == provider
    assert answer.headers["x-plimsoll-health"] == "healthy"
    assert answer.headers["x-plimsoll-context-limit"] == "8192"
    assert answer.headers["x-plimsoll-prompt-tokens"] == str(answer.parse().usage.prompt_tokens)


def test_a_stream(place):
    with client_of(place).chat.completions.stream(model=place[2], messages=[user("Ahoy")]) as stream:
        said = "".join(event.delta for event in stream if event.type == "content.delta")
        assert said == stream.get_final_completion().choices[0].message.content == WORDS


@pytest.mark.parametrize("streamed", [False, True])
def test_a_loop_past_the_window(two, place, task, streamed):
    completions = client_of(place).chat.completions
    messages = [user(task.text)]
    message = None
    for _ in range(2 * len(task.steps)):
        request = {"model": place[2], "messages": messages, "tools": [LOOKUP]}
        if streamed:
            with completions.stream(**request) as stream:
                message = stream.get_final_completion().choices[0].message
        else:
            message = completions.create(**request).choices[0].message
        task.answer_calls(message, messages)
        if not message.tool_calls:
            break
    task.check(two, place[3], message.content, streamed)


def test_errors_have_their_classes(place):
    url, key, model, provider = place
    with pytest.raises(openai.NotFoundError) as error:
        client_of(place).chat.completions.create(model=f"{model}-of-nobody", messages=[user("hi")])
    assert error.value.code == "model_not_found"
    wrong = OpenAI(base_url=url, api_key="wrong", max_retries=0, timeout=PATIENCE)
    if provider == "one":
        with pytest.raises(openai.AuthenticationError) as error:
            wrong.chat.completions.create(model=model, messages=[user("hi")])
        assert error.value.code == "invalid_api_key"
    else:
        # The proxy has this provider's key, and does not forward the client's.
        assert wrong.chat.completions.create(model=model, messages=[user("hi")]).choices
