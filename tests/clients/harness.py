"""Helpers of the SDK tests: the real binary, and a scripted provider.

Loopback only, free ports, temporary directories, and a bound on every wait.
"""

import gzip
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

# Time limit in seconds, for a slow machine.
PATIENCE = 30


def wait_until(condition, what, bound=PATIENCE):
    """Polls `condition` until it is true and returns its value; fails after the time limit."""
    end = time.monotonic() + bound
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {bound} s: {what}")


def binary():
    """The proxy under test: PLIMSOLL_BIN, otherwise the newest build."""
    target = Path(__file__).resolve().parents[2] / "target"
    places = [os.environ.get("PLIMSOLL_BIN"), target / "release/plimsoll", target / "debug/plimsoll"]
    for place in places:
        if place and Path(place).is_file():
            return str(place)
    raise FileNotFoundError("no binary to test: set PLIMSOLL_BIN, or run `cargo build` first")


def fetch(url, key=None, body=None, headers=None):
    """The answer's text; raises for an error and for an answer that breaks off."""
    headers = {"content-type": "application/json", **(headers or {})} if body else {}
    if key:
        headers["authorization"] = f"Bearer {key}"
    request = urllib.request.Request(url, json.dumps(body).encode() if body else None, headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return answer.read().decode()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Scripted:
    """An OpenAI-compatible provider. The model's name chooses the answer (see `Answers`)."""

    def __init__(self):
        self.lock = threading.Lock()
        self.requests = []
        self.closed = set()
        self.seen = {}
        self.made = {}
        outer = self

        class Handler(Answers):
            provider = outer

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request, client_address):
                """Some tests disconnect on purpose."""

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def of(self, tag):
        """The received requests with this `user`: `{headers, raw, body}` each."""
        with self.lock:
            return [one for one in self.requests if one["body"].get("user") == tag]

    def last(self, tag):
        found = self.of(tag)
        assert found, f"nothing reached the provider for {tag}"
        return found[-1]

    def saw_close(self, tag):
        with self.lock:
            return tag in self.closed


class Answers(BaseHTTPRequestHandler):
    """One connection of the scripted provider."""

    protocol_version = "HTTP/1.1"
    # Head and body are two writes: the second would wait for the acknowledgement of the first.
    disable_nagle_algorithm = True
    provider = None
    usage = None

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer(200, {"object": "list", "data": [{"id": "text", "object": "model"}]})

    def do_POST(self):
        raw = self.raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.body = json.loads(raw)
        self.tag = self.body.get("user", "")
        record = {"headers": dict(self.headers.items()), "raw": raw, "body": self.body}
        with self.provider.lock:
            self.provider.requests.append(record)
        name, _, detail = self.body["model"].partition("-")
        getattr(self, f"model_{name}", self.model_unknown)(detail)

    # One method for each first word of a model's name.

    def model_unknown(self, _):
        error = {"message": f"The model `{self.body['model']}` does not exist", "param": None,
                 "type": "invalid_request_error", "code": "model_not_found"}
        self.answer(404, {"error": error})

    def model_text(self, _):
        self.say({"content": TEXT})

    def model_gzip(self, _):
        self.say({"content": TEXT}, compress=True)

    def model_harbour(self, _):
        self.say({"content": json.dumps({"name": "Bergen", "depth": 2.5, "berths": [10]})})

    def model_window(self, _):
        self.say({"content": TEXT})

    def model_tools(self, _):
        last = self.body["messages"][-1]
        if last["role"] == "tool":
            self.say({"content": f"It says: {last['content']}"})
        else:
            calls = [call("call_a", "weather", '{"city": "Bergen"}'),
                     call("call_b", "weather", '{"city": "Porto"}')]
            self.say({"content": None, "tool_calls": calls})

    def model_status(self, status):
        headers = {"retry-after": "7"} if status == "429" else {}
        error = {"message": f"scripted {status}", "type": "scripted_error", "param": None,
                 "code": f"code_{status}"}
        self.answer(int(status), {"error": error}, headers)

    def model_flaky(self, _):
        with self.provider.lock:
            count = self.provider.seen[self.tag] = self.provider.seen.get(self.tag, 0) + 1
        if count == 1:
            error = {"message": "slow down", "type": "requests", "param": None, "code": "rate_limit"}
            self.answer(429, {"error": error}, {"retry-after-ms": "10"})
        else:
            self.say({"content": TEXT})

    def model_recovery(self, how):
        """A worker that counts tokens by bytes and follows the proxy's notices."""
        prompt = len(self.raw) // 4
        self.usage = {"prompt_tokens": prompt, "completion_tokens": 9, "total_tokens": prompt + 9}
        nth = self.step()
        asked = notice(self.body)
        if not asked:
            self.work(nth)
            return
        note = {"content": f"go on after request {nth}; verify with the weather tool"}
        notes = [call(f"own_{nth}_{at}", "add_reminder", json.dumps(note)) for at in range(3)]
        last = {"reminder_content": f"go on after request {nth}"}
        own = {"parallel": notes, "clear": [call(f"own_{nth}", "clear_mind", json.dumps(last))]}
        own = own.get(how, notes[:1])
        if how == "before":
            self.work(nth, before=own)
        elif how == "after":
            self.work(nth, after=own)
        else:
            self.say({"content": None, "tool_calls": own})

    def step(self):
        """The number of earlier requests with this tag."""
        with self.provider.lock:
            nth = self.provider.seen.get(self.tag, 0)
            self.provider.seen[self.tag] = nth + 1
        return nth

    def work(self, nth, before=(), after=()):
        """Calls the tool for the next city; answers with text after the last."""
        with self.provider.lock:
            made = self.provider.made.setdefault(self.tag, [])
            city = CITIES[len(made)] if len(made) < len(CITIES) else None
            if city:
                made.append(city)
        if city is None:
            self.say({"content": TEXT})
            return
        theirs = call(f"call_{nth}", "weather", json.dumps({"city": city}))
        self.say({"content": None, "tool_calls": [*before, theirs, *after]})

    def model_hang(self, _):
        self.wait_for_close()

    def model_drip(self, _):
        """A stream that stalls after its first words."""
        self.begin_stream(False)
        for delta in [{"role": "assistant", "content": ""}, {"content": "first"}]:
            self.chunk(event(self.body["model"], [choice(delta)]))
        self.wait_for_close()

    def model_broken(self, _):
        """A stream whose connection ends before the stream does."""
        self.begin_stream(False)
        self.chunk(event(self.body["model"], [choice({"role": "assistant", "content": "half"})]))
        self.close_connection = True

    def model_overflow(self, limit):
        """Refuses a prompt of more than so many tokens, by its bytes."""
        prompt = len(self.raw) // 4
        if prompt <= int(limit):
            self.say({"content": TEXT})
            return
        message = (f"This model's maximum context length is {limit} tokens. However, your messages resulted in "
                   f"{prompt} tokens. Please reduce the length of the messages.")
        error = {"message": message, "type": "invalid_request_error", "param": "messages",
                 "code": "context_length_exceeded"}
        self.answer(400, {"error": error})

    def model_recall(self, _):
        """Looks up a message, once it is offered the tool."""
        recalled = any(one.get("tool_call_id") == "own" for one in self.body["messages"])
        if "recall" in names(self.body) and not recalled:
            self.say({"content": None, "tool_calls": [call("own", "recall", '{"id": "m1"}')]})
        else:
            self.say({"content": TEXT})

    # Ways to write the answer.

    def wait_for_close(self):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            readable, _, _ = select.select([self.connection], [], [], 0.1)
            if readable and not self.closing_read():
                with self.provider.lock:
                    self.provider.closed.add(self.tag)
                break
        self.close_connection = True

    def closing_read(self):
        try:
            return self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return b""

    def say(self, message, compress=False):
        message = {"role": "assistant", **message}
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        if self.body.get("stream"):
            self.stream(message, finish, compress)
            return
        whole = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
        body = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "choices": [whole],
                "model": self.body["model"], "usage": self.usage or USAGE}
        self.answer(200, body, {"x-scripted": "yes"}, compress)

    def answer(self, status, body, headers=None, compress=False):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if compress:
            data = gzip.compress(data)
            self.send_header("content-encoding", "gzip")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def begin_stream(self, compress):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        if compress:
            self.send_header("content-encoding", "gzip")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def stream(self, message, finish, compress):
        deltas = [{"role": "assistant", "content": ""}]
        text = message["content"] or ""
        deltas += [{"content": text[at : at + 7]} for at in range(0, len(text), 7)]
        for at, one in enumerate(message.get("tool_calls") or []):
            name, arguments = one["function"]["name"], one["function"]["arguments"]
            start = {"index": at, "id": one["id"], "type": "function",
                     "function": {"name": name, "arguments": ""}}
            deltas.append({"tool_calls": [start]})
            for piece in (arguments[:5], arguments[5:]):
                deltas.append({"tool_calls": [{"index": at, "function": {"arguments": piece}}]})
        model = self.body["model"]
        events = [event(model, [choice(delta)]) for delta in deltas]
        events.append(event(model, [choice({}, finish)]))
        if (self.body.get("stream_options") or {}).get("include_usage"):
            events.append(event(model, [], self.usage or USAGE))
        events.append(b"data: [DONE]\n\n")
        self.begin_stream(compress)
        if compress:
            events = [gzip.compress(b"".join(events))]
        for one in events:
            self.chunk(one)
        self.wfile.write(b"0\r\n\r\n")

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


TEXT = "Fair winds, and a following sea. 顺风。"
USAGE = {"prompt_tokens": 321, "completion_tokens": 12, "total_tokens": 333,
         "prompt_tokens_details": {"cached_tokens": 128}}


CITIES = ["Bergen", "Porto", "Cork", "Riga", "Genoa", "Split", "Ghent", "Vigo", "Brest", "Hull",
          "Oban", "Turku", "Kotor", "Sines"]
OWN = ["add_reminder", "update_reminder", "delete_reminder", "clear_mind", "recall"]
RECOVERY = ["alone", "parallel", "before", "after", "clear"]


def names(body):
    """Names of the offered tools."""
    return [tool["function"]["name"] for tool in body.get("tools") or []]


def notice(body):
    """Whether the newest messages ask for reminders, and the tool is offered."""
    messages = body["messages"]
    said = [at for at, one in enumerate(messages) if one["role"] == "assistant"]
    start = said[-1] + 1 if said else 0
    calls = messages[start - 1].get("tool_calls") or [] if said else []
    own = {one["id"] for one in calls if one["function"]["name"] in OWN}
    newest = [one for one in messages[start:]
              if one["role"] == "user" or one["role"] == "tool" and one["tool_call_id"] not in own]
    asked = any("add_reminder" in json.dumps(one["content"]) for one in newest)
    return asked and "add_reminder" in names(body)


def call(call_id, name, arguments):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def choice(delta, finish=None):
    return {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}


def event(model, choices, usage=None):
    body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model,
            "choices": choices}
    if usage:
        body["usage"] = usage
    return b"data: " + json.dumps(body).encode() + b"\n\n"


CONFIG = """
[server]
data_dir = "{data}"

[providers.scripted]
base_url = "http://127.0.0.1:{port}/v1"
auth = "none"
profile = "openai"

# Levels that a short session reaches.
[models."scripted/window-8k"]
context_length = 8192
optimal_max_tokens = 3600
critical_max_tokens = 5400
""" + "".join(f"""
[models."scripted/recovery-{how}"]
context_length = 16384
optimal_max_tokens = 7200
critical_max_tokens = 10800
""" for how in RECOVERY)


@contextmanager
def running_proxy(provider):
    """Starts the binary before the scripted provider; yields its base URL."""
    with serving(CONFIG.format(data="data", port=provider.port)) as url:
        yield f"{url}/v1"


TWO_PROVIDERS = """
[server]
data_dir = "data"

# The client's key is forwarded, and the provider checks it.
[providers.one]
base_url = "http://127.0.0.1:{one}/v1"
auth = "client"
profile = "openai"

# The proxy has the key, and does not forward the client's.
[providers.two]
base_url = "http://127.0.0.1:{two}/v1"
api_key_env = "TWO_KEY"
profile = "template"

[models."one/model-a"]
context_length = {window}

[models."two/model-b"]
context_length = {window}
"""


class Two:
    """The proxy before two strict providers, which run as another process."""

    def __init__(self, url, ports):
        self.url = url
        self.ports = ports

    def seen(self, task):
        """The requests of a task: provider, status, error, messages, tokens, stream of each."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports['one']}/seen?{task}", timeout=PATIENCE) as answer:
            return json.load(answer)


TWO_KEY = {"TWO_KEY": "two-key"}


@contextmanager
def bare_providers(window):
    """Starts both providers; yields a `Two` without a proxy, and the configuration of one. The window is in tokens."""
    script = Path(__file__).with_name("providers.py")
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, str(script), str(window)], stdin=pipe, stdout=pipe) as providers:
        ports = json.loads(providers.stdout.readline())
        yield Two(None, ports), TWO_PROVIDERS.format(**ports, window=window)
        # The providers end with their standard input, which this block closes.


@contextmanager
def two_providers(window=8192):
    """Starts both providers and the proxy before them; yields a `Two`. The window is in tokens."""
    with bare_providers(window) as (two, config), serving(config, TWO_KEY) as url:
        two.url = url
        yield two


MESSAGES = """
[server]
data_dir = "data"

[providers.scripted]
base_url = "http://127.0.0.1:{port}/v1"
auth = "client"
profile = "anthropic"
ask_models = false

[recovery]
enabled = {recovery}

[models."plan-16k"]
context_length = 16000
optimal_max_tokens = 4000
critical_max_tokens = 12000

[models."plan-48k"]
context_length = 48000

[models."claude-sonnet-5-5"]
context_length = 48000

[models."claude-opus-5-5"]
context_length = 48000
"""


RESPONSES = """
[server]
data_dir = "data"

[providers.scripted]
base_url = "http://127.0.0.1:{port}/v1"
auth = "client"
profile = "openai"
ask_models = false

[recovery]
enabled = {recovery}

[models."plan-16k"]
context_length = 16000
optimal_max_tokens = 4000
critical_max_tokens = 12000

[models."gpt-5.5"]
context_length = 32000

[models."gpt-5.6-sol"]
context_length = 32000

[models."gpt-6.2-sol"]
context_length = 32000
"""


class ScriptedProvider:
    """A running provider of another process, and the configuration of a proxy before it."""

    def __init__(self, port, config):
        self.port = port
        self.config = config
        self.url = f"http://127.0.0.1:{port}"

    def seen(self, task):
        """The requests whose body contains the name of the task."""
        with urllib.request.urlopen(f"{self.url}/seen?{task}", timeout=PATIENCE) as answer:
            return json.load(answer)

    @contextmanager
    def proxy(self, recovery=True, more=""):
        """Starts the binary before it; yields its address, without a path."""
        with serving(self.settings(recovery) + more) as url:
            yield url

    def settings(self, recovery=True):
        """The configuration of that proxy."""
        return self.config.format(port=self.port, recovery=str(recovery).lower())


@contextmanager
def messages_provider(window=200_000):
    """`window` is that of the models whose names say none."""
    with scripted_provider("messages_provider.py", MESSAGES, {"WINDOW": str(window)}) as running:
        yield running


@contextmanager
def responses_provider(window=200_000):
    """`window` is that of the models whose names say none."""
    with scripted_provider("responses_provider.py", RESPONSES, {"WINDOW": str(window)}) as running:
        yield running


@contextmanager
def scripted_provider(name, config, environment=None):
    pipe = subprocess.PIPE
    script = [sys.executable, str(Path(__file__).with_name(name))]
    with subprocess.Popen(script, stdin=pipe, stdout=pipe, env={**os.environ, **(environment or {})}) as provider:
        yield ScriptedProvider(int(provider.stdout.readline()), config)
        # The provider ends with its standard input, which this block closes.


@contextmanager
def serving(config, environment=None):
    """Starts the binary with this configuration; yields its address, without a path."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "config.toml").write_text(config)
        # Storing a session may be slow on a busy machine, and the next request must find it. Nobody outside is asked.
        # What is kept lies in the folder, unless the configuration says where.
        usual = {"PLIMSOLL_STORE__TIMEOUT_MS": "5000", "PLIMSOLL_CATALOGUE__URL": "", "STATE_DIRECTORY": str(folder)}
        process, port = start(folder, {**usual, **os.environ, **(environment or {})})
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise AssertionError("the proxy did not drain after SIGTERM") from None


def start(folder, environment):
    log = folder / "log"
    # Another process may take a free port first; then it is tried with another.
    for _ in range(5):
        port = free_port()
        with open(log, "wb") as out:
            process = subprocess.Popen(
                [binary(), "serve", "--config", "config.toml", "--listen", f"127.0.0.1:{port}"],
                stdout=out, stderr=out, cwd=folder, env=environment,
            )
        wait_until(lambda: process.poll() is not None or ready(port), "the proxy is ready")
        if process.poll() is None:
            return process, port
    raise AssertionError(f"the proxy did not start:\n{log.read_text()}")


def ready(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False
