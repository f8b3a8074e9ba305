"""pydantic-ai's agents with two providers behind one proxy."""

import asyncio

import pytest
from openai import AsyncOpenAI
from pydantic_ai import Agent, ModelHTTPError
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

from contract import WORDS
from harness import PATIENCE


def agent_of(place, **more):
    url, key, model, _ = place
    settings = {"base_url": url, "api_key": key, "model": model, **more}
    client = AsyncOpenAI(base_url=settings["base_url"], api_key=settings["api_key"], max_retries=0, timeout=PATIENCE)
    return Agent(OpenAIChatModel(settings["model"], provider=OpenAIProvider(openai_client=client)))


def limited(work):
    return asyncio.run(asyncio.wait_for(work, PATIENCE))


def test_an_answer(place):
    result = limited(agent_of(place).run("Ahoy"))
    assert result.output == WORDS
    assert result.usage.input_tokens > 0


def test_a_stream(place):
    async def run():
        async with agent_of(place).run_stream("Ahoy") as result:
            return [piece async for piece in result.stream_text(delta=True, debounce_by=None)]

    pieces = limited(run())
    assert "".join(pieces) == WORDS
    assert len(pieces) > 2


@pytest.mark.parametrize("streamed", [False, True])
def test_a_loop_past_the_window(two, place, task, streamed):
    agent = agent_of(place)
    agent.tool_plain(name="lookup")(task.lookup)
    limits = UsageLimits(request_limit=2 * len(task.steps))

    async def run():
        if not streamed:
            return (await agent.run(task.text, usage_limits=limits)).output
        async with agent.run_stream(task.text, usage_limits=limits) as result:
            return await result.get_output()

    task.check(two, place[3], limited(run()), streamed)


def test_errors_have_their_statuses(place):
    with pytest.raises(ModelHTTPError) as error:
        limited(agent_of(place, model=f"{place[2]}-of-nobody").run("hi"))
    assert error.value.status_code == 404
    assert error.value.body["code"] == "model_not_found"
    if place[3] == "one":
        with pytest.raises(ModelHTTPError) as error:
            limited(agent_of(place, api_key="wrong").run("hi"))
        assert error.value.status_code == 401
