"""The Python examples of docs/clients.md, except LiteLLM's, which has its own environment."""

import pytest

import documents

EXAMPLES = [heading for heading in documents.examples() if heading != "LiteLLM"]


def test_there_are_examples():
    assert len(EXAMPLES) >= 4


@pytest.mark.parametrize("heading", EXAMPLES)
def test_an_example(two, heading):
    documents.check(heading, two.url)
