"""A provider that speaks Anthropic's Messages, as one process, for clients in any language. Prints its port, and
serves until its standard input closes.

The first word of the model's name chooses the behaviour: `plan` and `claude` follow the plan of the conversation, `status-429`
fails with this status, `drip` stalls after its first words. `plan-48k` has a window of 48,000 tokens; a model of another
name has that of the environment's `WINDOW`. The thinking of `claude-sonnet-5-5` and its like is bound to what stood before
it. The plan stands in the first user entry:
`<plan>{"task": "ab12", "steps": [[["lookup", {"number": 1}], ...], ...]}</plan>`. Each step is a list of parallel calls,
and the newest call in the conversation names the current step, so that a repeated request gets the same answer. The
model follows a notice that asks for reminders.
`GET /seen?TASK` returns the requests whose body contains the task's name.
"""

import hashlib
import json
import os
import re

from bound import Conversation, is_bound
from scripted import OWN, WORDS, Handler, Refused, count_words, find_plan, seen, serve, window

WINDOW = int(os.environ.get("WINDOW", 200_000))
KINDS = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
         413: "request_too_large", 429: "rate_limit_error", 500: "api_error", 529: "overloaded_error"}

# Conversations that the server holds, by the id of their last answer.
threads = {}


def blocks(entry):
    content = entry["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def of_kind(entry, kind):
    return [one for one in blocks(entry) if one["type"] == kind]


def count(body):
    """The tokens of all texts; 1,500 for an image."""
    images = 0

    def without_images(value):
        nonlocal images
        if isinstance(value, dict):
            if value.get("type") == "image":
                images += 1
                return None
            return {key: without_images(one) for key, one in value.items()}
        return [without_images(one) for one in value] if isinstance(value, list) else value

    parts = [without_images(body.get(key)) for key in ("system", "tools", "messages")]
    return count_words(parts) + 1_500 * images


def signature(thought):
    return hashlib.sha256(f"scripted {thought}".encode()).hexdigest()


def check(headers, body):
    """The tokens of the prompt; raises `Refused` with the first fault."""
    if "scripted" not in (headers.get("x-api-key") or headers.get("authorization") or ""):
        raise Refused("invalid x-api-key", 401)
    if not headers.get("anthropic-version"):
        raise Refused("anthropic-version: header is required")
    ours = [name for name in headers if name.lower().startswith("x-plimsoll")]
    if ours or "plimsoll" in body:
        raise Refused("plimsoll: Extra inputs are not permitted")
    check_entries(body)
    check_thinking(body)
    if json.dumps(body).count('"cache_control": {') > 4:
        raise Refused("A maximum of 4 blocks with cache_control may be provided.")
    names = [tool["name"] for tool in body.get("tools") or []]
    if len(names) != len(set(names)):
        raise Refused("tools: Tool names must be unique.")
    tokens = count(body)
    limit = window(body["model"], WINDOW)
    if tokens > limit:
        raise Refused(f"prompt is too long: {tokens} tokens > {limit} maximum")
    return tokens


def check_entries(body):
    asked = []
    entries = body["messages"]
    for at, entry in enumerate(entries):
        if entry["role"] not in ("user", "assistant", "system") or at == 0 and entry["role"] != "user":
            raise Refused(f"messages.{at}: role {entry['role']}")
        # A system entry may do nothing but change the effort; pi sends such.
        is_empty = not entry["content"] and not (entry["role"] == "system" and "output_config" in entry)
        if is_empty or any(not one["text"] for one in of_kind(entry, "text")):
            raise Refused(f"messages.{at}: text content blocks must be non-empty")
        results = [one["tool_use_id"] for one in of_kind(entry, "tool_result")]
        first = [one["type"] for one in blocks(entry)[: len(results)]]
        if results and (entry["role"] != "user" or set(first) != {"tool_result"}):
            raise Refused(f"messages.{at}: `tool_result` blocks come first")
        if sorted(results) != sorted(asked):
            raise Refused(f"messages.{at}: `tool_use` ids {asked} and `tool_result` blocks {results} do not match")
        asked = [one["id"] for one in of_kind(entry, "tool_use")] if entry["role"] == "assistant" else []
        if asked and not body.get("tools"):
            raise Refused("Requests which include `tool_use` blocks must define tools")
    if asked or entries[-1]["role"] == "assistant":
        raise Refused("This model does not support assistant message prefill.")
    answers = [one for one in entries if one["role"] == "assistant"]
    is_running = answers and any(of_kind(one, "tool_result") for one in entries[entries.index(answers[-1]) :])
    if body.get("thinking", {}).get("type") == "enabled" and is_running and blocks(answers[-1])[0]["type"] != "thinking":
        raise Refused("Expected `thinking` or `redacted_thinking`, but found `tool_use`")


def check_thinking(body):
    if is_bound(body["model"]):
        Conversation(body)
        return
    for at, entry in enumerate(body["messages"]):
        if any(one["signature"] != signature(one["thinking"]) for one in of_kind(entry, "thinking")):
            raise Refused(f"messages.{at}: Invalid `signature` in `thinking` block")


def thinks(body):
    return is_bound(body["model"]) or body.get("thinking", {}).get("type") in ("enabled", "adaptive")


def compose_answer(body):
    """The blocks of the model's answer: the next step of its plan, a reminder, or text."""
    said = [one["text"] for entry in body["messages"] if entry["role"] == "user" for one in of_kind(entry, "text")]
    plan = find_plan("\n".join(said))
    if not plan or not body.get("tools"):
        return [text_block(WORDS)]
    calls = [one for entry in body["messages"] for one in of_kind(entry, "tool_use")]
    done = [re.fullmatch(rf"toolu_{plan['task']}_(\d+)_\d+", one["id"]) for one in calls]
    at = max((int(one[1]) + 1 for one in done if one), default=0)
    thinking = think(f"{at} steps of {plan['task']} are done.") if thinks(body) else []
    if is_asked_for_notes(body):
        note = {"content": f"{at} steps are done; the plan stands in the task"}
        return [*thinking, call(f"toolu_own_{plan['task']}_{at}", "add_reminder", note)]
    if at >= len(plan["steps"]):
        return [*thinking, text_block(f"{WORDS} Done after {at} steps.")]
    step = [call(f"toolu_{plan['task']}_{at}_{nth}", name, given) for nth, (name, given) in enumerate(plan["steps"][at])]
    # Every fifth answer thinks once more.
    note = think(f"Step {at} comes next.") if is_bound(body["model"]) and at % 5 == 2 else []
    return [*thinking, text_block(f"Step {at}."), *note, *step]


def think(thought):
    return [{"type": "thinking", "thinking": thought, "signature": signature(thought)}]


def is_asked_for_notes(body):
    """Whether the newest entries ask for reminders, and the tool is offered."""
    entries = body["messages"]
    last = max((at for at, one in enumerate(entries) if one["role"] == "assistant"), default=-1)
    newest = [one for entry in entries[last + 1 :] for one in of_kind(entry, "text")]
    names = [tool["name"] for tool in body["tools"]]
    own = [one for one in of_kind(entries[last], "tool_use") if one["name"] in OWN] if last >= 0 else []
    return "add_reminder" in names and not own and any("add_reminder" in one["text"] for one in newest)


def text_block(text):
    return {"type": "text", "text": text}


def call(call_id, name, given):
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


class Answers(Handler):
    def do_HEAD(self):
        self.answer(200, {})

    def do_GET(self):
        if not self.answer_seen():
            self.answer(200, {"data": [], "has_more": False, "first_id": None, "last_id": None})

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        body = json.loads(raw)
        thread = body.get("thread") or {}
        if thread.get("type") == "continue":
            held = threads[thread["previous_message_id"]]
            body = {**held, **body, "messages": held["messages"] + body["messages"]}
        if self.path.partition("?")[0].endswith("/count_tokens"):
            self.count_tokens(body, raw)
            return
        record = {"status": 200, "error": None, "raw": raw.decode(), "headers": dict(self.headers.items()), "closed": False,
                  "entries": len(body["messages"]), "stream": bool(body.get("stream")), "tokens": count(body),
                  "max_tokens": body.get("max_tokens"), "tools": [one["name"] for one in body.get("tools") or []]}
        self.remember(record)
        behaviour, _, detail = body["model"].partition("-")
        try:
            tokens = check(self.headers, body)
            if behaviour == "status":
                raise Refused(f"scripted {detail}", int(detail))
            if behaviour not in ("plan", "claude", "drip"):
                raise Refused(f"model: {body['model']}", 404)
        except Refused as refused:
            record |= {"status": refused.status, "error": str(refused)}
            self.refuse(refused)
            return
        if behaviour == "drip":
            self.drip(record)
            return
        content = compose_answer(body)
        if is_bound(body["model"]):
            Conversation(body).think(content)
        stop = "tool_use" if content[-1]["type"] == "tool_use" else "end_turn"
        usage = {"input_tokens": tokens - tokens // 2, "cache_read_input_tokens": tokens // 2,
                 "cache_creation_input_tokens": 0, "output_tokens": 17}
        message = {"id": f"msg_{len(seen)}", "type": "message", "role": "assistant", "model": body["model"],
                   "content": content, "stop_reason": stop, "stop_sequence": None, "usage": usage}
        if thread:
            threads[message["id"]] = {**body, "messages": [*body["messages"], {"role": "assistant", "content": content}]}
        if body.get("stream"):
            self.stream(message)
        else:
            self.answer(200, message)

    def count_tokens(self, body, raw):
        try:
            check_thinking(body)
            self.answer(200, {"input_tokens": count(body)})
        except Refused as refused:
            self.remember({"raw": raw.decode(), "error": str(refused), "tokens": count(body)})
            self.refuse(refused)

    def refuse(self, refused):
        error = {"type": KINDS[refused.status], "message": str(refused)}
        self.answer(refused.status, {"type": "error", "error": error, "request_id": "req_1"})

    def begin_stream(self, message):
        self.begin_events()
        started = {**message, "content": [], "stop_reason": None, "usage": {**message["usage"], "output_tokens": 1}}
        self.event("message_start", message=started)
        self.event("ping")

    def stream(self, message):
        self.begin_stream(message)
        for index, block in enumerate(message["content"]):
            empty = {"text": {"text": ""}, "tool_use": {"input": {}}, "thinking": {"thinking": "", "signature": ""}}
            self.event("content_block_start", index=index, content_block={**block, **empty[block["type"]]})
            for delta in deltas(block):
                self.event("content_block_delta", index=index, delta=delta)
            self.event("content_block_stop", index=index)
        delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        self.event("message_delta", delta=delta, usage={"output_tokens": message["usage"]["output_tokens"]})
        self.event("message_stop")
        self.end_events()

    def drip(self, record):
        """A stream that stalls after its first words, until the client leaves."""
        usage = {"input_tokens": 7, "output_tokens": 1}
        self.begin_stream({"id": "msg_1", "type": "message", "role": "assistant", "model": "drip", "usage": usage})
        self.event("content_block_start", index=0, content_block=text_block(""))
        self.event("content_block_delta", index=0, delta={"type": "text_delta", "text": "first"})
        self.wait_for_close(record)


def deltas(block):
    kind, text = {"text": ("text_delta", "text"), "thinking": ("thinking_delta", "thinking")}.get(
        block["type"], ("input_json_delta", "partial_json"))
    whole = json.dumps(block["input"]) if block["type"] == "tool_use" else block[text]
    yield from ({"type": kind, text: whole[at : at + 40]} for at in range(0, len(whole), 40))
    if block["type"] == "thinking":
        yield {"type": "signature_delta", "signature": block["signature"]}


if __name__ == "__main__":
    serve(Answers)
