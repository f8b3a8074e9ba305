"""Two providers as one process, for clients in any language: `one` is strict as OpenAI is, `two` as a
chat template is. The argument is their window in tokens. Prints `{"one": port, "two": port}` and serves until its
standard input closes.

The model of both follows its task. The first user message may contain
`<plan>{"task": "ab12", "steps": [[["lookup", {"number": 1}], ...], ...]}</plan>`: each step is a list
of parallel calls, and the newest call in the conversation names the current step, so that a repeated
request gets the same answer. A compacted conversation has no calls: there the step after the last one that was given
out is next. The model follows a notice that asks for reminders. Without a plan, or after its last step, it answers with
text; without tools, with text that has the plan, as a summary would.
`GET /seen?TASK` returns the requests whose body contains the task's name.
"""

import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from rules import OpenAI, Refused, Template, text_of

WINDOW = int(sys.argv[1]) if len(sys.argv) > 1 else 8_192
ONE = OpenAI("model-a", WINDOW, "one-key")
TWO = Template("model-b", WINDOW, "two-key")
WORDS = "Fair winds, and a following sea. 顺风。"
OWN = ("add_reminder", "update_reminder", "delete_reminder", "clear_mind", "recall")

lock = threading.Lock()
seen = []
# The steps of each task that were given out.
given_out = {}


def obey(body):
    """The model's message: the next step of its plan, a reminder, or text."""
    found = None
    for message in body["messages"]:
        if message["role"] in ("user", "assistant"):
            found = found or re.search(r"<plan>(.*?)</plan>", text_of(message), re.DOTALL)
    if not found:
        return {"content": WORDS}
    if not body.get("tools"):
        # It may be asked for a summary.
        return {"content": f"{WORDS} {found[0]}"}
    plan = json.loads(found[1])
    ids = [one["id"] for message in body["messages"] for one in message.get("tool_calls") or []]
    done = [int(one.split("_")[2]) + 1 for one in ids if one.startswith(f"call_{plan['task']}_")]
    at = done[-1] if done else given_out.get(plan["task"], 0)
    if is_asked_for_notes(body):
        note = json.dumps({"content": f"{at} steps are done; the plan stands in the task"})
        return {"content": None, "tool_calls": [call(f"own_{plan['task']}_{at}", "add_reminder", note)]}
    if at >= len(plan["steps"]):
        return {"content": f"{WORDS} Done after {at} steps."}
    given_out[plan["task"]] = at + 1
    calls = [call(f"call_{plan['task']}_{at}_{nth}", name, json.dumps(arguments))
             for nth, (name, arguments) in enumerate(plan["steps"][at])]
    return {"content": None, "tool_calls": calls}


def is_asked_for_notes(body):
    """Whether the newest messages ask for reminders, and the tool is offered."""
    messages = body["messages"]
    last = max((at for at, one in enumerate(messages) if one["role"] == "assistant"), default=-1)
    calls = messages[last].get("tool_calls") or [] if last >= 0 else []
    own = [one["id"] for one in calls if one["function"]["name"] in OWN]
    newest = [one for one in messages[last + 1 :] if one.get("tool_call_id") not in own]
    names = [tool["function"]["name"] for tool in body["tools"]]
    return "add_reminder" in names and any("add_reminder" in text_of(one) for one in newest)


def call(call_id, name, arguments):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


class Answers(BaseHTTPRequestHandler):
    """A connection to either provider."""

    protocol_version = "HTTP/1.1"
    # Head and body are two writes: the second would wait for the acknowledgement of the first.
    disable_nagle_algorithm = True
    name, rules = "", None

    def log_message(self, *_):
        pass

    def do_GET(self):
        path, _, task = self.path.partition("?")
        if path == "/seen":
            with lock:
                found = [{key: one[key] for key in one if key != "raw"} for one in seen if task in one["raw"]]
            self.answer(200, found)
        else:
            self.answer(200, {"object": "list", "data": [{"id": self.rules.model, "object": "model"}]})

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        body = json.loads(raw)
        record = {"provider": self.name, "status": 200, "error": None, "raw": raw.decode(),
                  "messages": len(body.get("messages") or []), "stream": bool(body.get("stream"))}
        try:
            record["tokens"] = self.rules.check(self.headers, body)
        except Refused as refused:
            record |= {"status": refused.status, "error": refused.body["error"]["message"]}
            self.remember(record)
            self.answer(refused.status, refused.body)
            return
        self.remember(record)
        message = {"role": "assistant", **obey(body)}
        usage = {"prompt_tokens": record["tokens"], "completion_tokens": 17,
                 "total_tokens": record["tokens"] + 17}
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        head = {"id": "chatcmpl-1", "created": 1, "model": body["model"]}
        if body.get("stream"):
            self.stream(head, message, finish, usage if wants_usage(body) else None)
        else:
            choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
            self.answer(200, {**head, "object": "chat.completion", "choices": [choice], "usage": usage})

    def remember(self, record):
        with lock:
            seen.append(record)

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def stream(self, head, message, finish, usage):
        deltas = [{"role": "assistant", "content": message["content"] and ""}]
        text = message["content"] or ""
        deltas += [{"content": text[at : at + 7]} for at in range(0, len(text), 7)]
        for at, one in enumerate(message.get("tool_calls") or []):
            arguments = one["function"]["arguments"]
            start = {**one, "index": at, "function": {**one["function"], "arguments": ""}}
            deltas.append({"tool_calls": [start]})
            for piece in (arguments[:5], arguments[5:]):
                deltas.append({"tool_calls": [{"index": at, "function": {"arguments": piece}}]})
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
        choices.append({"index": 0, "delta": {}, "finish_reason": finish})
        for choice in choices:
            self.event({**head, "choices": [choice]})
        if usage:
            self.event({**head, "choices": [], "usage": usage})
        self.chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def event(self, body):
        self.chunk(b"data: " + json.dumps({"object": "chat.completion.chunk", **body}).encode() + b"\n\n")

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


def wants_usage(body):
    return (body.get("stream_options") or {}).get("include_usage")


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """A client may disconnect."""


def serve(name, rules):
    handler = type(name, (Answers,), {"name": name, "rules": rules})
    server = Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


if __name__ == "__main__":
    print(json.dumps({"one": serve("one", ONE), "two": serve("two", TWO)}), flush=True)
    sys.stdin.read()
