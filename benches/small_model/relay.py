"""Stands between the proxy and the engine: sees what the proxy sent, moves its prompt, and plays the history's last turn."""

import json
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# Seconds for one answer of the engine, which gets little of a busy machine.
PATIENCE = 3_600
# Tokens of an answer. The proxy sees a larger limit, since it takes one of at most 64 for a request for a title.
ANSWER = 48


def post(url, body, headers=None):
    """Headers and JSON of an answer."""
    headers = {"content-type": "application/json", **(headers or {})}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return answer.headers, json.load(answer)


class Relay:
    """One chat at a time: `begin` says what is asked, where the prompt goes, and what the history's last answer was."""

    def __init__(self, engine):
        self.engine = engine
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_):
                pass

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                data = json.dumps(outer.answer(body)).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def begin(self, history, prompt, question, place):
        """`prompt` is the tokens of the history without its last answer."""
        self.history, self.prompt, self.question, self.place = history, prompt, question, place
        self.notice, self.said = None, []

    def answer(self, body):
        messages = body["messages"]
        if messages == self.history[:-1]:
            # Not asked again, since the engine would forget the answer's tokens.
            usage = {"prompt_tokens": self.prompt, "completion_tokens": 256, "total_tokens": self.prompt + 256}
            choice = {"index": 0, "message": self.history[-1], "finish_reason": "stop"}
            return {"id": "chat", "object": "chat.completion", "created": 1, "model": "small", "choices": [choice],
                    "usage": usage}
        if not self.said:
            body = {**body, "messages": self.move(messages)}
        _, done = post(f"{self.engine}/v1/chat/completions", {**body, "max_tokens": ANSWER})
        self.said.append(done["choices"][0]["message"]["content"] or "")
        return done

    def move(self, messages):
        assert messages[:-1] == self.history, "the proxy changed the history"
        said = messages[-1]["content"]
        assert said.startswith(self.question), said
        self.notice = said[len(self.question):].strip()
        return self.place(messages, self.question, self.notice) if self.notice else messages
