"""An agent of the Anthropic SDK that is set up by its environment: the prompt is its input, the answer its output."""

import sys

from anthropic import Anthropic

from contract import LOOKUP
from lookup import lookup

client = Anthropic(max_retries=0)
function = LOOKUP["function"]
tools = [{"name": function["name"], "description": function["description"], "input_schema": function["parameters"]}]
messages = [{"role": "user", "content": sys.stdin.read()}]
while True:
    answer = client.messages.create(model=sys.argv[1], max_tokens=500, messages=messages, tools=tools)
    messages.append({"role": "assistant", "content": answer.content})
    calls = [block for block in answer.content if block.type == "tool_use"]
    if not calls:
        break
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": lookup(**call.input)} for call in calls]
    messages.append({"role": "user", "content": results})
print(answer.content[-1].text)
