"""Shared by the tests of all clients: the proxy before two providers, once for each run."""

import os

import pytest

# Nothing of a test goes anywhere but to the proxy.
os.environ |= {
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "NO_PROXY": "*",
}

from contract import PLACES, Task  # noqa: E402
from harness import two_providers  # noqa: E402


@pytest.fixture(scope="session")
def two():
    with two_providers() as running:
        yield running


@pytest.fixture(params=PLACES, ids=[f"{path}-{model}" for path, _, model, _ in PLACES])
def place(request, two):
    """A base URL with the key and the model to use there, and the provider that then answers."""
    path, key, model, provider = request.param
    return two.url + path, key, model, provider


@pytest.fixture
def task():
    return Task()
