"""What holds for every client with both providers: where to send requests, a task of many steps,
and checks at the providers.
"""

import json
import uuid
from itertools import pairwise

# Where a client sends its requests: the path of its base URL, its key, its model. The model's name
# or the path chooses the provider.
PLACES = [
    ("/v1", "one-key", "one/model-a", "one"),
    ("/v1", "no-key-of-theirs", "two/model-b", "two"),
    ("/two/v1", "no-key-of-theirs", "model-b", "two"),
]
WORDS = "Fair winds, and a following sea. 顺风。"
STEPS = 14
# Characters of a result; five fill a window.
RESULT = 5_000

LOOKUP = {
    "type": "function",
    "function": {
        "name": "lookup",
        "description": "An entry of the log",
        "parameters": {
            "type": "object",
            "properties": {"number": {"type": "integer"}},
            "required": ["number"],
        },
    },
}


def user(text):
    return {"role": "user", "content": text}


class Task:
    """A plan of steps for the model, one with two calls at once; keeps the numbers it was asked for."""

    def __init__(self, steps=STEPS):
        self.name = f"task{uuid.uuid4().hex[:8]}"
        self.steps = [[["lookup", {"number": at}]] for at in range(steps)]
        self.steps[2].append(["lookup", {"number": 100}])
        self.asked = []

    @property
    def text(self):
        plan = {"task": self.name, "steps": self.steps}
        return f"Look up every number, please. <plan>{json.dumps(plan)}</plan>"

    def lookup(self, number):
        self.asked.append(number)
        line = f"entry {number} of the log of {self.name}: wind and rain, a rising tide\n"
        return (line * (RESULT // len(line) + 1))[:RESULT]

    def answer_calls(self, message, messages):
        """Adds the model's message and the results of its calls."""
        messages.append(message)
        for call in message.tool_calls or []:
            result = self.lookup(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})

    def check(self, two, provider, said, streamed=False):
        """The loop completed, and exceeded the window on its way without an error."""
        assert {one["provider"] for one in two.seen(self.name)} == {provider}
        self.check_seen(two, said, streamed)

    def check_seen(self, provider, said, streamed=False):
        """The same, wherever the requests went."""
        assert sorted(self.asked) == sorted(call[1]["number"] for step in self.steps for call in step)
        assert said.startswith(WORDS) and f"Done after {len(self.steps)} steps" in said, said
        seen = provider.seen(self.name)
        assert [one["error"] for one in seen] == [None] * len(seen)
        assert {one["stream"] for one in seen} == {streamed}
        assert len(seen) > len(self.steps)
        # A prompt with fewer tokens than the previous one: the guard cut, unnoticed by the client.
        sent = [one["tokens"] for one in seen]
        assert any(later < earlier for earlier, later in pairwise(sent)), sent
