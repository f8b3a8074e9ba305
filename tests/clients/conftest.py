"""Fixtures of the tests of all clients."""

import os
import uuid

import pytest

# Only the proxy is contacted.
os.environ |= {
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "NO_PROXY": "*",
}

from contract import PLACES, Task  # noqa: E402
from harness import PATIENCE, Scripted, running_proxy, two_providers  # noqa: E402


@pytest.fixture(scope="module")
def provider():
    scripted = Scripted()
    yield scripted
    scripted.stop()


@pytest.fixture(scope="module")
def base_url(provider):
    with running_proxy(provider) as url:
        yield url


@pytest.fixture
def client(base_url):
    # Not every environment of the tests has this SDK.
    from openai import OpenAI  # noqa: PLC0415

    with OpenAI(base_url=base_url, api_key="unused", max_retries=0, timeout=PATIENCE) as client:
        yield client


@pytest.fixture
def tag():
    """Identifies the requests of one test at the provider."""
    return uuid.uuid4().hex


@pytest.fixture(scope="session")
def two():
    with two_providers() as running:
        yield running


@pytest.fixture(params=PLACES, ids=[f"{path}-{model}" for path, _, model, _ in PLACES])
def place(request, two):
    """A base URL with its key and model, and the provider that answers."""
    path, key, model, provider = request.param
    return two.url + path, key, model, provider


@pytest.fixture
def task():
    return Task()
