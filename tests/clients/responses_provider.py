"""A provider that speaks OpenAI's Responses, as one process, for clients in any language. Prints its port, and serves
until its standard input closes.

The first word of the model's name chooses the behaviour: `plan` follows the plan of the conversation, `status-429` fails
with this status, `drip` stalls after its first words. `plan-32k` has a window of 32,000 tokens; a model of another name
has that of the environment's `WINDOW`, and follows the plan. `gpt-6.2-sol` does not read reasoning of which the input
before it has changed, and says so. The plan stands in a user message:
`<plan>{"task": "ab12", "steps": [[["lookup", {"number": 1}], ...], ...]}</plan>`. Each step is a list of parallel calls
(a text as arguments makes a custom call), and the newest call in the conversation names the current step, so that a
repeated request gets the same answer. A compacted conversation has no calls: there the step after the last one that was
given out is next. The model follows a notice that asks for reminders.
`GET /seen?TASK` returns the requests whose body contains the task's name.
"""

import hashlib
import json
import os
import re

from bound import is_bound, list_dropped, seal_input
from scripted import OWN, WORDS, Handler, Refused, count_words, find_plan, serve, window

OVERFLOW = "Your input exceeds the context window of this model. Please adjust your input and try again."
OUTPUTS = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
# How the id of a call without reasoning begins.
PLAIN = "plain_"
# The steps of each task that were given out.
given_out = {}
KNOWN = {"message", "reasoning", "additional_tools", "compaction", "compaction_trigger", *OUTPUTS, *OUTPUTS.values()}


def items(body):
    given = body.get("input") or []
    return [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else given


def kind(item):
    return item.get("type", "message")


def texts(item):
    content = item.get("content") or ""
    return [content] if isinstance(content, str) else [one.get("text", "") for one in content]


def tools(body):
    """The tools of the request, and those that stand in its input."""
    listed = [one for item in items(body) if kind(item) == "additional_tools" for one in item["tools"]]
    flat = []
    for one in [*(body.get("tools") or []), *listed]:
        flat += one["tools"] if one["type"] == "namespace" else [one]
    return flat


def names(body):
    return [one.get("name", one["type"]) for one in tools(body)]


def seal(thought):
    return hashlib.sha256(f"scripted {thought}".encode()).hexdigest()


def count(body):
    return count_words([body.get("instructions"), body.get("tools"), items(body)])


def check(headers, body):
    """The tokens of the prompt; raises `Refused` with the first fault."""
    if "scripted" not in (headers.get("authorization") or ""):
        raise Refused("Incorrect API key provided.", 401, code="invalid_api_key")
    if [name for name in headers if name.lower().startswith("x-plimsoll")] or "plimsoll" in body:
        raise Refused("Unknown parameter: 'plimsoll'.")
    if len(names(body)) != len(set(names(body))):
        raise Refused("Tool names must be unique.", param="tools")
    check_items(items(body))
    tokens = count(body)
    limit = window(body["model"], int(os.environ.get("WINDOW", 200_000)))
    if tokens > limit:
        raise Refused(OVERFLOW, code="context_length_exceeded")
    return tokens


def check_items(given):
    """Calls and outputs pair by their ids; reasoning comes back as it was made, before what it led to."""
    calls, answered, before = {}, set(), None
    ids = [item.get("id") for item in given if kind(item) == "reasoning"]
    if doubled := [one for one in ids if one and ids.count(one) > 1]:
        raise Refused(f"Duplicate item found with id {doubled[0]}. Remove duplicate items from your input and try again.")
    for at, item in enumerate(given):
        form = kind(item)
        if form not in KNOWN:
            raise Refused(f"Invalid value: '{form}'.", param=f"input[{at}]")
        if form == "message" and item["role"] not in ("user", "assistant", "developer", "system"):
            raise Refused(f"Invalid value: '{item['role']}'.", param=f"input[{at}].role")
        if form in OUTPUTS:
            calls[item["call_id"]] = OUTPUTS[form]
            if form == "function_call":
                json.loads(item["arguments"])
        elif form in OUTPUTS.values():
            if calls.get(item["call_id"]) != form:
                raise Refused(f"No tool call found for function call output with call_id {item['call_id']}.")
            answered.add(item["call_id"])
        elif form == "reasoning" and item["encrypted_content"].partition(".")[0] != seal(item["summary"][0]["text"]):
            raise Refused("The encrypted content could not be verified.", param=f"input[{at}]")
        elif form == "compaction" and item["encrypted_content"] != "scripted":
            raise Refused("The encrypted content could not be verified.", param=f"input[{at}]")
        elif form == "compaction_trigger" and at + 1 < len(given):
            raise Refused("compaction_trigger must be the last item.", param=f"input[{at}]")
        if before == "reasoning" and not is_made_by_model(item):
            raise Refused("Item of type 'reasoning' was provided without its required following item.")
        thought = (item.get("id") or PLAIN) if form in OUTPUTS else PLAIN
        thought = thought.partition(".")[0].replace("fc_", "rs_", 1)
        if not thought.startswith(PLAIN) and thought not in [one.get("id") for one in given[:at]]:
            raise Refused(f"Item '{item['id']}' was provided without its required 'reasoning' item: '{thought}'.")
        before = form
    if before == "reasoning" or calls.keys() - answered:
        raise Refused(f"No tool output found for function call {sorted(calls.keys() - answered)}.")


def is_made_by_model(item):
    return kind(item) in (*OUTPUTS, "reasoning") or kind(item) == "message" and item["role"] == "assistant"


def compose_output(body):
    """The items of the model's answer: the next step of its plan, a reminder, a compaction, or text."""
    given = items(body)
    if given and kind(given[-1]) == "compaction_trigger":
        return [{"type": "compaction", "id": "cmp_1", "encrypted_content": "scripted"}]
    said = [text for one in given if kind(one) == "message" and one["role"] == "user" for text in texts(one)]
    plan = find_plan("\n".join(said))
    if not plan or not tools(body) or is_asked_for_summary(body):
        return [message(WORDS, "words")]
    calls = [one["call_id"] for one in given if kind(one) in OUTPUTS]
    done = [re.fullmatch(rf"call_{plan['task']}_(\d+)_\d+", one) for one in calls]
    at = max((int(one[1]) + 1 for one in done if one), default=given_out.get(plan["task"], 0))
    thought = f"{at} steps of {plan['task']} are done."
    mark = f"{plan['task']}_{at}"
    reasoning = {"type": "reasoning", "id": f"rs_{mark}", "summary": [{"type": "summary_text", "text": thought}],
                 "encrypted_content": seal(thought)}
    if is_bound(body["model"]):
        reasoning["encrypted_content"] += f".{seal_input(body, given)[-1]}"
    thinking = [reasoning] if body.get("reasoning") else []
    if is_asked_for_notes(body):
        note = {"content": f"{at} steps are done; the plan stands in the task"}
        reasoning["id"] = f"rs_own_{mark}"
        return [*thinking, call(f"call_own_{mark}", "add_reminder", note, f"own_{mark}", bool(thinking))]
    if at >= len(plan["steps"]):
        return [*thinking, message(f"{WORDS} Done after {at} steps.", mark)]
    given_out[plan["task"]] = at + 1
    made = enumerate(plan["steps"][at])
    step = [call(f"call_{mark}_{nth}", name, given, mark, bool(thinking)) for nth, (name, given) in made]
    return [*thinking, message(f"Step {at}.", mark), *step]


def is_asked_for_summary(body):
    """Whether Codex says that it compacts."""
    turn = (body.get("client_metadata") or {}).get("x-codex-turn-metadata", "{}")
    return json.loads(turn).get("request_kind") == "compaction"


def is_asked_for_notes(body):
    """Whether the newest items ask for reminders, and the tool is offered."""
    given = items(body)
    last = max((at for at, one in enumerate(given) if is_made_by_model(one)), default=-1)
    own = last >= 0 and given[last].get("name") in OWN
    return "add_reminder" in names(body) and not own and "add_reminder" in json.dumps(given[last + 1 :])


def message(text, mark):
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": f"msg_{mark}", "role": "assistant", "status": "completed", "content": content}


def call(call_id, name, given, mark, thinks):
    """A call whose id names the reasoning that it needs, if there is some."""
    own_id = f"fc_{mark}.{call_id.rpartition('_')[2]}" if thinks else f"{PLAIN}{call_id}"
    own = {"id": own_id, "call_id": call_id, "name": name, "status": "completed"}
    if isinstance(given, str):
        return {"type": "custom_tool_call", "input": given, **own}
    return {"type": "function_call", "arguments": json.dumps(given), **own}


class Answers(Handler):
    def do_GET(self):
        if "upgrade" in (self.headers.get("connection") or "").lower():
            self.remember({"raw": "websocket", "error": None})
            self.answer(500, {})
        elif not self.answer_seen():
            self.answer(200, {"object": "list", "data": []})

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        body = json.loads(raw)
        path = self.path.partition("?")[0]
        if path.endswith("/input_tokens"):
            self.answer(200, {"object": "response.input_tokens", "input_tokens": count(body)})
            return
        record = {"path": path, "status": 200, "error": None, "raw": raw.decode(), "headers": dict(self.headers.items()),
                  "closed": False, "stream": bool(body.get("stream")), "tokens": count(body), "tools": names(body)}
        self.remember(record)
        behaviour, _, detail = body["model"].partition("-")
        try:
            tokens = check(self.headers, body)
            if behaviour == "status":
                raise Refused(f"scripted {detail}", int(detail))
        except Refused as refused:
            record |= {"status": refused.status, "error": str(refused)}
            error = {"type": "invalid_request_error", "message": str(refused), "param": "input", "code": None}
            self.answer(refused.status, {"error": {**error, **refused.members}})
            return
        if behaviour == "drip":
            self.drip(record)
            return
        details = {"input_tokens_details": {"cached_tokens": tokens // 2, "cache_write_tokens": 0},
                   "output_tokens_details": {"reasoning_tokens": 3}}
        usage = {"input_tokens": tokens, "output_tokens": 17, "total_tokens": tokens + 17, **details}
        response = {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": body["model"],
                    "output": compose_output(body), "usage": usage, "error": None, "incomplete_details": None,
                    "parallel_tool_calls": True, "tool_choice": "auto", "tools": body.get("tools") or []}
        if is_bound(body["model"]):
            record["dropped"] = list_dropped(body, items(body))
            removed = {"type": "reasoning", "action": "removed", "reason": "prefix_mismatch"}
            response["input_transformations"] = [{"id": one, **removed} for one in record["dropped"]]
        if path.endswith("/compact"):
            output = [{"type": "compaction", "id": "cmp_1", "encrypted_content": "scripted"}]
            self.answer(200, {"id": "resp_1", "object": "response.compaction", "created_at": 1, "output": output,
                              "usage": usage})
        elif body.get("stream"):
            self.stream(response)
        else:
            self.answer(200, response)

    def stream(self, response):
        self.begin_events()
        self.number = 0
        started = {**response, "status": "in_progress", "output": [], "usage": None}
        self.event("response.created", response=started)
        self.event("response.in_progress", response=started)
        for index, item in enumerate(response["output"]):
            self.stream_item(index, item)
        self.event("response.completed", response=response)
        self.end_events()

    def stream_item(self, index, item):
        place = {"output_index": index, "item_id": item["id"]}
        empty = {"message": {"content": []}, "function_call": {"arguments": ""}, "custom_tool_call": {"input": ""},
                 "reasoning": {"summary": [], "encrypted_content": ""}, "compaction": {}}[item["type"]]
        self.event("response.output_item.added", output_index=index, item={**item, **empty, "status": "in_progress"})
        match item["type"]:
            case "message":
                part, place = item["content"][0], {**place, "content_index": 0}
                self.event("response.content_part.added", **place, part={**part, "text": ""})
                self.deltas("response.output_text", "text", part["text"], {**place, "logprobs": []})
                self.event("response.content_part.done", **place, part=part)
            case "reasoning":
                part, place = item["summary"][0], {**place, "summary_index": 0}
                self.event("response.reasoning_summary_part.added", **place, part={**part, "text": ""})
                self.deltas("response.reasoning_summary_text", "text", part["text"], place)
                self.event("response.reasoning_summary_part.done", **place, part=part)
            case "function_call":
                self.deltas("response.function_call_arguments", "arguments", item["arguments"], place)
            case "custom_tool_call":
                self.deltas("response.custom_tool_call_input", "input", item["input"], place)
        self.event("response.output_item.done", output_index=index, item=item)

    def deltas(self, kind, member, whole, place):
        for at in range(0, len(whole), 40):
            self.event(f"{kind}.delta", delta=whole[at : at + 40], **place)
        name = {"name": ""} if member == "arguments" else {}
        self.event(f"{kind}.done", **{member: whole}, **name, **place)

    def event(self, kind, **members):
        super().event(kind, sequence_number=self.number, **members)
        self.number += 1

    def drip(self, record):
        """A stream that stalls after its first words, until the client leaves."""
        self.begin_events()
        self.number = 0
        response = {"id": "resp_1", "object": "response", "status": "in_progress", "output": [], "model": "drip"}
        self.event("response.created", response=response)
        item = {**message("", "drip"), "content": [], "status": "in_progress"}
        self.event("response.output_item.added", output_index=0, item=item)
        place = {"output_index": 0, "item_id": "msg_drip", "content_index": 0}
        self.event("response.content_part.added", **place, part={"type": "output_text", "text": "", "annotations": []})
        self.event("response.output_text.delta", delta="first", logprobs=[], **place)
        self.wait_for_close(record)


if __name__ == "__main__":
    serve(Answers)
