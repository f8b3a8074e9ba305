"""What Claude Code and Codex take for the window of a model behind a foreign base URL: the tables of docs/clients.md, from the
programs themselves, before a server that answers one word.
"""

import json
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).resolve().parents[2] / "target/clients"
CLAUDE = PROGRAMS / "claude-code/node_modules/.bin/claude"
CODEX = PROGRAMS / "codex/node_modules/.bin/codex"
BETA = "context-1m-2025-08-07"
# Seconds for one run.
LONG = 240
COUNTS = {"input_tokens": 10, "output_tokens": 2}


def messages_events(model):
    begun = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [], "usage": COUNTS}
    return [
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "ok"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]


def responses_events(model):
    part = {"type": "output_text", "text": "ok", "annotations": []}
    item = {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": [part]}
    usage = {**COUNTS, "total_tokens": 12}
    whole = {"id": "r1", "object": "response", "status": "completed", "model": model, "output": [item], "usage": usage}
    return [
        {"type": "response.created", "response": {"id": "r1"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    ]


class Provider(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, body, kind="application/json"):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self):
        self.answer(b"")

    def do_GET(self):
        self.answer(b'{"data": [], "models": [], "has_more": false}')

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.seen.append((body.get("model"), BETA in (self.headers["anthropic-beta"] or "")))
        if "count_tokens" in self.path:
            return self.answer(json.dumps(COUNTS).encode())
        make = messages_events if "messages" in self.path else responses_events
        events = make(body.get("model"))
        text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        return self.answer(text.encode(), "text/event-stream")


@pytest.fixture(scope="module")
def provider():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    server.seen = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def starts(program):
    if not program.exists():
        pytest.skip(f"npm has installed no {program.name}")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=LONG, check=False)
    if version.returncode != 0:
        pytest.skip(f"{program.name} does not start: {version.stderr[:200]}")


UNKNOWN, KNOWN, OLDER = "local/qwen3", "claude-opus-5-5", "claude-sonnet-4-5"
SMALL = {"CLAUDE_CODE_MAX_CONTEXT_TOKENS": "32000"}


@pytest.mark.parametrize(("model", "variables", "window", "sent", "with_beta"), [
    (KNOWN, {}, 1_000_000, KNOWN, False),
    (OLDER, {}, 200_000, OLDER, False),
    (f"{OLDER}[1m]", {}, 1_000_000, OLDER, True),
    (f"{KNOWN}[1m]", {}, 1_000_000, KNOWN, False),
    (UNKNOWN, {}, 1_000_000, UNKNOWN, False),
    (f"{UNKNOWN}[1m]", SMALL, 1_000_000, UNKNOWN, True),
    (UNKNOWN, SMALL, 32_000, UNKNOWN, False),
    (KNOWN, SMALL, 1_000_000, KNOWN, False),
    (KNOWN, {**SMALL, "DISABLE_COMPACT": "1"}, 32_000, KNOWN, False),
])
def test_claude_code_takes(provider, tmp_path, model, variables, window, sent, with_beta):
    starts(CLAUDE)
    provider.seen.clear()
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "ANTHROPIC_API_KEY": "scripted", "IS_SANDBOX": "1",
        "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{provider.server_port}", "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_TELEMETRY": "1", **variables}
    run = subprocess.run([CLAUDE, "-p", "--model", model, "--output-format", "json"], input="hi", cwd=tmp_path,
                         env=environment, capture_output=True, text=True, timeout=LONG, check=False)
    result = json.loads(run.stdout)
    result = result[-1] if isinstance(result, list) else result
    assert [used["contextWindow"] for used in result["modelUsage"].values()] == [window]
    assert set(provider.seen) == {(sent, with_beta)}


@pytest.mark.parametrize(("model", "told", "window"), [
    ("gpt-5.5", None, 258_400),
    ("gpt-6.2-sol", None, 475_000),
    (UNKNOWN, None, 258_400),
    (f"{UNKNOWN}[1m]", None, 258_400),
    (UNKNOWN, 32_000, 30_400),
    ("gpt-5.5", 1_000_000, 258_400),
    (UNKNOWN, 1_000_000, 258_400),
])
def test_codex_takes(provider, tmp_path, model, told, window):
    starts(CODEX)
    provider.seen.clear()
    set_window = "" if told is None else f"model_context_window = {told}"
    (tmp_path / "config.toml").write_text(f"""
model = "{model}"
model_provider = "scripted"
{set_window}
[model_providers.scripted]
name = "scripted"
base_url = "http://127.0.0.1:{provider.server_port}/v1"
wire_api = "responses"
requires_openai_auth = true
""")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CODEX_HOME": str(tmp_path),
                   "CODEX_API_KEY": "scripted"}
    run = subprocess.run([CODEX, "exec", "--json", "--skip-git-repo-check", "hi"], cwd=tmp_path, env=environment,
                         stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LONG, check=False)
    lines = [line for file in tmp_path.glob("sessions/**/*.jsonl") for line in file.read_text().splitlines()]
    payloads = [json.loads(line).get("payload", {}) for line in lines]
    known = [payload for payload in payloads if "model_context_window" in payload]
    assert known, run.stdout + run.stderr
    assert {payload["model_context_window"] for payload in known} == {window}
    assert {name for name, _ in provider.seen} == {model}
