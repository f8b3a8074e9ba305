"""Open WebUI in Chromium, before an engine with a window of 8,192 tokens, of which its own tools take three quarters."""

import hashlib
import json
import os
import re
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import sync_playwright

from harness import Answers, Scripted, call, fetch, free_port, notice, serving, wait_until

PROGRAM = Path(__file__).resolve().parents[3] / "target/clients/more/open-webui/bin/open-webui"
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
# Tokens; four bytes are one.
WINDOW = 8192
QUESTIONS = 10
# Seconds until it has started, and for one answer on its page.
LONG = 120

RECIPE = Path(__file__).resolve().parents[3] / "deploy/open-webui"
# As its recipe has them, but for the window of this engine and the key of this client.
CONTAINER = yaml.safe_load((RECIPE / "compose.yaml").read_text())["services"]["open-webui"]["environment"]
KEY = "a-key-of-open-webui"
SETTINGS = (RECIPE / "plimsoll/config.toml").read_text() + f"""
[clients.open_webui]
key_sha256 = "{hashlib.sha256(KEY.encode()).hexdigest()}"

[models."local/engine"]
context_length = {WINDOW}
"""


class Engine(Answers):
    """An engine that counts what it reads and refuses what is too long. Its model asks for the time before each answer, and
    obeys a notice of the proxy."""

    def do_GET(self):
        self.answer(200, {"object": "list", "data": [{"id": "engine", "object": "model"}]})

    def model_engine(self, _):
        prompt = len(self.raw) // 4
        self.usage = {"prompt_tokens": prompt, "completion_tokens": 200, "total_tokens": prompt + 200}
        self.provider.requests[-1]["refused"] = prompt > WINDOW
        if prompt > WINDOW:
            message = f"request ({prompt} tokens) exceeds the available context size ({WINDOW} tokens), try increasing it"
            self.answer(400, {"error": {"code": 400, "message": message, "type": "exceed_context_size_error",
                                        "n_prompt_tokens": prompt, "n_ctx": WINDOW}})
            return
        messages = self.body["messages"]
        asked = [str(one["content"]) for one in messages if one["role"] == "user"]
        number = (re.findall(r"Question (\d+)", asked[-1]) or re.findall(r"Question (\d+)", str(messages)) or ["none"])[-1]
        if not self.body.get("tools"):
            self.say({"content": json.dumps({"title": "The log", "tags": ["Log"], "follow_ups": ["And then?"]})})
        elif notice(self.body):
            note = json.dumps({"content": f"question {number} is answered"})
            self.say({"content": None, "tool_calls": [call(f"own_{number}", "add_reminder", note)]})
        elif messages[-1]["role"] == "user":
            self.say({"content": None, "tool_calls": [call(f"call_{number}", "get_current_timestamp", "{}")]})
        else:
            self.say({"content": f"Answer {number}. " + f"Wind and rain on day {number}, a rising tide. " * 12})


class Provider(Scripted):
    def __init__(self):
        super().__init__()
        self.server.RequestHandlerClass = type("Handler", (Engine,), {"provider": self})


@contextmanager
def open_webui(folder, connections):
    """Starts it with these connections: a prefix for its models, an address, and headers of each."""
    port = free_port()
    configs = {str(at): {"enable": True, "prefix_id": prefix, "headers": headers}
               for at, (prefix, _, headers) in enumerate(connections)}
    environment = {
        "ENABLE_PERSISTENT_CONFIG": CONTAINER["ENABLE_PERSISTENT_CONFIG"],
        "PATH": os.environ["PATH"], "HOME": str(folder), "DATA_DIR": str(folder / "data"), "WEBUI_SECRET_KEY": "secret",
        "OPENAI_API_BASE_URLS": ";".join(url for _, url, _ in connections),
        "OPENAI_API_KEYS": ";".join(KEY for _ in connections), "OPENAI_API_CONFIGS": json.dumps(configs),
        # One user without a login, no engine of its own, and nobody outside is asked.
        "WEBUI_AUTH": "False", "ENABLE_OLLAMA_API": CONTAINER["ENABLE_OLLAMA_API"], "RAG_EMBEDDING_ENGINE": "openai", "OFFLINE_MODE": "True",
        "ANONYMIZED_TELEMETRY": "False", "ENABLE_VERSION_UPDATE_CHECK": "False"}
    log = folder / "log"
    command = [PROGRAM, "serve", "--host", "127.0.0.1", "--port", str(port)]
    with open(log, "wb") as out:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=out)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: process.poll() is not None or is_up(url), f"{command} is up: {log.read_text()[-500:]}", LONG)
        assert process.poll() is None, log.read_text()[-2_000:]
        yield url
    finally:
        process.kill()
        process.wait()


def is_up(url):
    try:
        return json.loads(fetch(f"{url}/health"))["status"] is True
    except OSError:
        return False


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """Its address, that of the proxy, and the engine behind both."""
    if not PROGRAM.exists():
        pytest.skip("tests/clients/more/run installs Open WebUI")
    engine = Provider()
    settings = SETTINGS.replace("host.docker.internal:8080", f"127.0.0.1:{engine.port}")
    with serving(settings) as proxy:
        task = json.loads(CONTAINER["OPENAI_API_CONFIGS"])["0"]["headers"]
        direct = f"http://127.0.0.1:{engine.port}/v1"
        connections = [("direct", direct, {}), ("named", f"{proxy}/v1", task), ("plain", f"{proxy}/v1", {})]
        with open_webui(tmp_path_factory.mktemp("open-webui"), connections) as url:
            yield url, proxy, engine
    engine.stop()


@pytest.fixture
def page():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(LONG * 1_000)
        # It shows what is new in it, over everything else.
        page.add_locator_handler(page.get_by_role("dialog"), lambda: page.keyboard.press("Escape"))
        yield page
        browser.close()


def ask(page, number):
    """Types a question of 150 tokens."""
    page.click("#chat-input")
    page.keyboard.insert_text(f"Question {number}: what does the log say of day {number}? " + "The sea was calm. " * 30)
    page.keyboard.press("Enter")


def sessions(proxy):
    return json.loads(fetch(f"{proxy}/plimsoll/api/sessions", KEY))["sessions"]


def is_task(request):
    return request["body"]["messages"][-1]["content"].startswith("### Task:")


def test_it_is_refused_without_the_proxy(app, page):
    url, _, engine = app
    page.goto(f"{url}/?models=direct.engine")
    for number in range(QUESTIONS):
        ask(page, number)
        answered = page.get_by_text(f"Answer {number}.").first
        refused = page.get_by_text("exceeds the available context size").first
        answered.or_(refused).first.wait_for()
        if refused.is_visible():
            break
    assert engine.requests[-1]["refused"] or any(one["refused"] for one in engine.requests)
    assert 0 < number < QUESTIONS - 1, number


@pytest.mark.parametrize("connection", ["named", "plain"])
def test_a_chat_outgrows_the_window(app, page, connection):
    url, proxy, engine = app
    before, known = len(engine.requests), {one["id"] for one in sessions(proxy)}
    page.goto(f"{url}/?models={connection}.local/engine")
    for number in range(QUESTIONS):
        ask(page, number)
        page.get_by_text(f"Answer {number}.").first.wait_for()
    kinds = ("concise title", "follow_ups", "broad tags")
    asked = lambda: [one for one in engine.requests[before:] if is_task(one)]
    wait_until(lambda: all(any(kind in str(one["body"]) for one in asked()) for kind in kinds), "its own requests", LONG)
    seen = engine.requests[before:]
    assert not any(one["refused"] for one in seen)
    chat = [one for one in seen if not is_task(one)]
    assert all(len(one["body"]["tools"]) >= 36 for one in chat)
    # The tool ran: its results came back, with an answer to each.
    results = {one["tool_call_id"] for request in chat for one in request["body"]["messages"] if one["role"] == "tool"}
    assert results >= {f"call_{number}" for number in range(QUESTIONS)}, results
    # The guard cut, and the app noticed nothing.
    sizes = [len(one["raw"]) for one in chat]
    assert any(later < earlier for earlier, later in zip(sizes, sizes[1:], strict=False)), sizes
    new = [one for one in sessions(proxy) if one["id"] not in known]
    assert len(new) == 1, new
    # Each question takes two requests of the app.
    assert new[0]["generations"] >= 2 * QUESTIONS, new
    # A header that names a task goes no further than the proxy.
    assert not any(name.lower().startswith("x-plimsoll") for one in seen for name in one["headers"])
