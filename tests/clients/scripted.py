"""What scripted providers of any wire format share: the server, its record of requests, and the plan."""

import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WORDS = "Fair winds, and a following sea. 顺风。"
OWN = ("add_reminder", "update_reminder", "delete_reminder", "clear_mind", "recall")

lock = threading.Lock()
seen = []


class Refused(Exception):
    """A refused request: its status, and members of its error."""

    def __init__(self, message, status=400, **members):
        super().__init__(message)
        self.status = status
        self.members = members


def window(model, default):
    """The tokens that the name of a model says, as in `plan-48k`."""
    named = re.search(r"-(\d+)k\b", model)
    return int(named[1]) * 1_000 if named else default


def count_words(parts):
    """A token for four letters of a word, and one for every other character."""
    return len(re.findall(r"\w{1,4}|[^\w\s]", json.dumps(parts, ensure_ascii=False)))


def find_plan(said):
    found = re.search(r"<plan>(.*?)</plan>", said, re.DOTALL)
    return json.loads(found[1]) if found else None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body are two writes: the second would wait for the acknowledgement of the first.
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def remember(self, record):
        with lock:
            seen.append(record)

    def answer_seen(self):
        """Answers `GET /seen?TASK`; false for another path."""
        path, _, task = self.path.partition("?")
        if path == "/seen":
            with lock:
                self.answer(200, [one for one in seen if task in one["raw"]])
        return path == "/seen"

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.send_header("request-id", "req_1")
        if status == 429:
            self.send_header("retry-after", "7")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def begin_events(self):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def event(self, kind, **members):
        data = f"event: {kind}\ndata: {json.dumps({'type': kind, **members})}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def end_events(self):
        self.wfile.write(b"0\r\n\r\n")

    def wait_for_close(self, record):
        self.connection.settimeout(30)
        record["closed"] = self.rfile.read(1) == b""
        self.close_connection = True


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """A client may disconnect."""


def serve(handler):
    """Prints the port; returns when the standard input closes."""
    server = Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()
