"""An agent of the OpenAI SDK that is set up by its environment: the prompt is its input, the answer its output."""

import json
import sys

from openai import OpenAI

from contract import LOOKUP
from lookup import lookup

client = OpenAI(max_retries=0)
messages = [{"role": "user", "content": sys.stdin.read()}]
while True:
    answer = client.chat.completions.create(model=sys.argv[1], messages=messages, tools=[LOOKUP]).choices[0].message
    messages.append(answer)
    if not answer.tool_calls:
        break
    for call in answer.tool_calls:
        result = lookup(**json.loads(call.function.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
print(answer.content)
