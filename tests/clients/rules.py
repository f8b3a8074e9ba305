"""What two kinds of provider accept, and how they count tokens.

`OpenAI` accepts what OpenAI accepts; `Template` is as strict as the chat template of a local engine. It
shares no code with the proxy, so that a mistake cannot hide in both.
"""

import json
import re


class Refused(Exception):
    """A refused request: the status and body of its error."""

    def __init__(self, status, **error):
        super().__init__(error["message"])
        self.status = status
        self.body = {"error": error}


class Rules:
    """Common to both: the name of the model, its window in tokens, and its key."""

    def __init__(self, model, window, key):
        self.model = model
        self.window = window
        self.key = key

    def check(self, headers, body):
        """The tokens of the prompt; raises `Refused` with the first fault."""
        if headers.get("authorization") != f"Bearer {self.key}":
            raise Refused(401, message="Incorrect API key provided.", param=None,
                          type="invalid_request_error", code="invalid_api_key")
        if body.get("model") != self.model:
            raise Refused(404, message=f"The model `{body.get('model')}` does not exist", param=None,
                          type="invalid_request_error", code="model_not_found")
        ours = [name for name in headers if name.lower().startswith("x-plimsoll")]
        if ours or "plimsoll" in body or any("plimsoll" in one for one in body["messages"]):
            raise self.invalid("Unrecognized request argument supplied: plimsoll")
        self.check_calls(body["messages"])
        self.check_roles(body["messages"])
        tokens = self.count(body)
        self.check_window(tokens, body)
        return tokens

    def invalid(self, message):
        return Refused(400, message=message, type="invalid_request_error", param="messages", code=None)

    def check_calls(self, messages):
        """Every call has its result directly after it, and every result its call before it."""
        waiting = []
        for at, message in enumerate(messages):
            if message["role"] == "tool":
                if message.get("tool_call_id") not in waiting:
                    raise self.invalid("messages with role 'tool' must be a response to a preceding "
                                       "message with 'tool_calls'.")
                waiting.remove(message["tool_call_id"])
                continue
            if waiting:
                raise self.invalid("An assistant message with 'tool_calls' must be followed by tool "
                                   f"messages responding to each 'tool_call_id'. Missing: {waiting}")
            waiting = [one["id"] for one in message.get("tool_calls") or []]
            if message.get("content") is None and not waiting:
                raise self.invalid(f"Invalid value for 'content' of message {at}: expected a string")
            for one in message.get("tool_calls") or []:
                json.loads(one["function"]["arguments"])
        if waiting:
            raise self.invalid(f"'tool_calls' without an answer: {waiting}")


class OpenAI(Rules):
    """Adjacent user messages and late system messages are accepted; the answer counts inside the window."""

    def check_roles(self, messages):
        for message in messages:
            if message["role"] not in ("system", "developer", "user", "assistant", "tool"):
                raise self.invalid(f"Invalid value: '{message['role']}'.")

    def count(self, body):
        """A token for four letters of a word, and one for every other character."""
        parts = [json.dumps(body.get("tools") or "", ensure_ascii=False)]
        parts += [text_of(one) for one in body["messages"]]
        return 3 + sum(4 + len(re.findall(r"\w{1,4}|[^\w\s]", part)) for part in parts)

    def check_window(self, tokens, body):
        answer = body.get("max_completion_tokens") or body.get("max_tokens") or 0
        if tokens + answer > self.window:
            raise Refused(
                400, type="invalid_request_error", param="messages", code="context_length_exceeded",
                message=f"This model's maximum context length is {self.window} tokens. However, you "
                f"requested {tokens + answer} tokens ({tokens} in the messages, {answer} in the "
                "completion). Please reduce the length of the messages or completion.")


class Template(Rules):
    """One system message first, then alternating roles, except in tool rounds."""

    def check_roles(self, messages):
        before = None
        for at, message in enumerate(messages):
            role = message["role"]
            allowed = {
                "system": at == 0,
                "user": before in (None, "system", "assistant"),
                "assistant": before in ("user", "tool"),
                "tool": before in ("call", "tool"),
            }
            if not allowed.get(role):
                raise self.invalid("Conversation roles must alternate user/assistant/user/assistant: "
                                   f"{role} after {before}")
            before = "call" if message.get("tool_calls") else role
        if before not in ("user", "tool"):
            raise self.invalid(f"Cannot go on after a message of the role {before}")

    def count(self, body):
        """A token for three bytes."""
        parts = [json.dumps(body.get("tools") or "", ensure_ascii=False)]
        parts += [text_of(one) for one in body["messages"]]
        return 5 + sum(9 + len(part.encode()) // 3 for part in parts)

    def check_window(self, tokens, body):
        if tokens >= self.window:
            raise Refused(
                400, code=400, type="exceed_context_size_error", n_prompt_tokens=tokens,
                n_ctx=self.window, message=f"request ({tokens} tokens) exceeds the available "
                f"context size ({self.window} tokens), try increasing it")


def text_of(message):
    """The text and calls of a message."""
    content = message.get("content") or ""
    if not isinstance(content, str):
        content = "".join(part.get("text", "") for part in content)
    calls = [one["function"] for one in message.get("tool_calls") or []]
    return content + "".join(one["name"] + one["arguments"] for one in calls)
