"""A pydantic-ai agent that is set up by its environment: the prompt is its input, the answer its output."""

import sys

from pydantic_ai import Agent
from pydantic_ai.usage import UsageLimits

from lookup import lookup

agent = Agent(f"openai-chat:{sys.argv[1]}")
agent.tool_plain(lookup)
print(agent.run_sync(sys.stdin.read(), usage_limits=UsageLimits(request_limit=100)).output)
