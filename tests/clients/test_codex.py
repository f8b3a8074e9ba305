"""Codex without a terminal, before a scripted provider: it patches files and runs commands, and what they print is
together more than the window.
"""

import itertools
import json
import os
import re
import shutil
import subprocess
import urllib.request
import uuid
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness import responses_provider
from scripted import count_words
from setups import set_up

CODEX = Path(__file__).resolve().parents[2] / "target/clients/codex/node_modules/.bin/codex"
# The second has its tools in the input, and one that runs programs.
MODELS = ["gpt-5.5", "gpt-5.6-sol"]
# It does not read reasoning of which the input before it has changed. Codex gives it commands alone.
BOUND = "gpt-6.2-sol"
STEPS = 40
WINDOW = 32_000
# Seconds for one run.
LONG = 240

CONFIG = """
model = "{model}"
model_provider = "{name}"
approval_policy = "never"
sandbox_mode = "danger-full-access"
{more}

[model_providers.{name}]
name = "{name}"
base_url = "{url}/v1"
env_key = "SCRIPTED_KEY"
wire_api = "responses"
supports_websockets = true
"""


def codex(home, url, prompt, model, name="scripted", more="", before=()):
    """Runs Codex to its end; its events. Without `url`, nothing here names the proxy or a model: what stands before its
    command does, or its file."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "CODEX_API_KEY": "scripted"}
    if url:
        (home / "config.toml").write_text(CONFIG.format(url=url, model=model, name=name, more=more))
        environment |= {"CODEX_HOME": str(home), "SCRIPTED_KEY": "scripted"}
    run = subprocess.run([*before, CODEX, "exec", "--json", "--skip-git-repo-check", prompt], cwd=home / "work",
                         env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LONG, check=False)
    events = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    assert events, run.stderr
    return events


def starts():
    if not CODEX.exists():
        return "npm has installed no Codex"
    version = subprocess.run([CODEX, "--version"], capture_output=True, text=True, timeout=LONG, check=False)
    return None if version.returncode == 0 else f"Codex does not start: {version.stderr[:200]}"


@pytest.fixture(scope="module")
def provider():
    if reason := starts():
        pytest.skip(reason)
    with responses_provider(WINDOW) as running:
        yield running


class Work:
    """Files, and a plan of steps over them."""

    def __init__(self, home, model):
        self.task, self.home, self.folder, self.model = f"task{uuid.uuid4().hex[:8]}", home, home / "work", model
        self.folder.mkdir()
        for number in range(STEPS):
            lines = (f"file {number}, line {at}: wind and rain, a rising tide\n" for at in range(160))
            (self.folder / f"{number}.txt").write_text("".join(lines))
        self.steps = [[self.step(number)] for number in range(STEPS)]

    def step(self, number):
        match number % 3:
            case 0:
                return self.command(f"cat {number}.txt")
            case 1:
                line = f"file {number - 1}, line 50: "
                patch = (f"*** Begin Patch\n*** Update File: {number - 1}.txt\n@@\n-{line}wind and rain, a rising tide\n"
                         f"+{line}sun, a rising tide\n*** End Patch\n")
                return self.patch(patch)
            case _:
                return self.command(f"cat {number}.txt; grep -h sun *.txt > found")

    def command(self, command):
        if self.model != MODELS[1]:
            return ["exec_command", {"cmd": command}]
        return ["exec", f"text(await tools.exec_command({{cmd: {json.dumps(command)}}}));"]

    def patch(self, patch):
        if self.model == MODELS[0]:
            return ["apply_patch", patch]
        if self.model == BOUND:
            return self.command(f"apply_patch <<'END'\n{patch}END")
        return ["exec", f"text(await tools.apply_patch({json.dumps(patch)}));"]

    def run(self, url, **more):
        plan = json.dumps({"task": self.task, "steps": self.steps})
        return codex(self.home, url, f"Please do this work. <plan>{plan}</plan>", self.model, **more)

    def is_done(self):
        """The last command saw every edit before it."""
        found = (self.folder / "found").read_text() if (self.folder / "found").exists() else ""
        return found.count("sun") == len(self.steps) // 3


@pytest.fixture(params=MODELS)
def work(tmp_path, request):
    yield Work(tmp_path, request.param)
    shutil.rmtree(tmp_path, ignore_errors=True)


def is_trigger(one):
    """Whether a request asks the provider to compact."""
    return json.loads(one["raw"])["input"][-1].get("type") == "compaction_trigger"


def kinds(seen):
    """What Codex says of its requests."""
    bodies = [json.loads(one["raw"]) for one in seen if one["raw"] != "websocket"]
    return [json.loads(one["client_metadata"]["x-codex-turn-metadata"])["request_kind"] for one in bodies]


def test_it_is_refused_without_the_proxy(provider, work):
    events = work.run(provider.url)
    errors = [one["error"] for one in provider.seen(work.task) if one["error"]]
    assert errors and errors[-1].startswith("Your input exceeds the context window"), errors
    assert events[-1]["type"] == "turn.failed" and "ran out of room" in events[-1]["error"]["message"]
    assert not work.is_done()


def assert_ended(work, events, seen, kinds_of_request=frozenset({"turn"})):
    """The work is done, no request was refused, and the guard cut unnoticed."""
    assert [one["error"] for one in seen if one["error"]] == []
    assert events[-1]["type"] == "turn.completed", events[-1]
    said = [one["item"]["text"] for one in events if one.get("item", {}).get("type") == "agent_message"]
    assert f"Done after {len(work.steps)} steps" in said[-1]
    assert work.is_done()
    # Where that is all, its own compaction was not needed.
    assert set(kinds(seen)) == kinds_of_request
    assert "add_reminder" not in json.dumps(events)
    sent = [one["tokens"] for one in seen]
    assert any(after < before for before, after in itertools.pairwise(sent)), sent


@pytest.mark.parametrize("recovery", [True, False])
@pytest.mark.parametrize("work", [*MODELS, BOUND], indirect=True)
def test_it_ends_its_work(provider, work, recovery):
    with provider.proxy(recovery) as url:
        events = work.run(url)
    seen = provider.seen(work.task)
    assert_ended(work, events, seen)
    own = [one for one in seen if "call_own" in one["raw"]]
    assert bool(own) == recovery
    assert len(seen) > STEPS + 1 if recovery else len(seen) == STEPS + 1
    if work.model == BOUND:
        assert_reasoning_is_read_between_cuts(seen)


USERS_FILE = b"""# mine
approval_policy = "never"   # not asked
sandbox_mode = "danger-full-access"
[history]
persistence = "none"
"""


@pytest.mark.parametrize(("way", "model"), [("run", None), ("connect", None), ("connect", BOUND)])
def test_it_ends_its_work_as_a_command_sets_it_up(provider, tmp_path, way, model):
    work = Work(tmp_path, BOUND)
    file = tmp_path / ".codex/config.toml"
    file.parent.mkdir()
    file.write_bytes(USERS_FILE)
    with set_up(way, "codex", tmp_path, provider.settings(), model) as before:
        events = work.run(None, before=before)
    seen = provider.seen(work.task)
    # Told the window of a model, it compacts by itself.
    assert_ended(work, events, seen, {"turn", "compaction"} if model else {"turn"})
    assert {json.loads(one["raw"])["model"] for one in seen} == {BOUND}


@contextmanager
def small_provider(window):
    """The provider's models have this window, and the proxy knows it."""
    with responses_provider(window) as provider:
        provider.config = provider.config.replace(str(WINDOW), str(window))
        yield provider


@pytest.mark.parametrize("recovery", [True, False])
@pytest.mark.parametrize(("work", "window"), [(MODELS[0], 16_000), (MODELS[1], 12_000)], indirect=["work"])
def test_it_ends_its_work_in_a_small_window(work, window, recovery):
    """The tools of the second are too large for it, and get shorter once the first request was refused."""
    work.steps = work.steps[:12]
    with small_provider(window) as provider, provider.proxy(recovery) as url:
        events = work.run(url)
        seen = provider.seen(work.task)
    sizes = [count_words([json.loads(one["raw"])["input"][0]]) for one in seen]
    if seen[0]["tokens"] > window:
        assert sizes[1] < sizes[0] / 2
        seen = seen[1:]
    assert_ended(work, events, seen)


def test_it_is_told_when_a_window_is_too_small_for_it(tmp_path):
    """What it sends before any work is more than that, and the tools of this model stay as they are."""
    work = Work(tmp_path, BOUND)
    with small_provider(16_000) as provider, provider.proxy() as url:
        events = work.run(url)
        seen = provider.seen(work.task)
    assert events[-1]["type"] == "turn.failed" and "ran out of room" in events[-1]["error"]["message"]
    assert len(seen) == 1


def list_calls(request):
    entries = json.loads(request["raw"])["input"]
    return {entry["call_id"] for entry in entries if entry["type"] == "function_call"}


def assert_reasoning_is_read_between_cuts(seen):
    """The provider leaves out no reasoning that it did not leave out before, but where the proxy cut."""
    cuts = 0
    for before, now in itertools.pairwise(one for one in seen if one["raw"] != "websocket"):
        is_cut = now["tokens"] < before["tokens"] or now["tools"] != before["tools"]
        # A step of the same size and a prompt may have come in place of what was left out.
        is_cut = is_cut or not list_calls(before) <= list_calls(now)
        cuts += is_cut
        assert is_cut or set(now["dropped"]) <= set(before["dropped"]), (before["tokens"], now["tokens"])
    assert cuts >= 2


def test_it_keeps_its_task_in_a_window_smaller_than_configured(tmp_path):
    """Its first user message says where it runs; the task is the one after it."""
    if reason := starts():
        pytest.skip(reason)
    work = Work(tmp_path, MODELS[0])
    (work.folder / "AGENTS.md").write_text("Measure the tide before every entry.\n")
    with responses_provider(20_000) as provider, provider.proxy(True) as url:
        events = work.run(url)
        seen = provider.seen(work.task)
    assert events[-1]["type"] == "turn.completed", events[-1]
    assert work.is_done()
    assert all("<plan>" in one["raw"] for one in seen)
    # The window is learnt from the first refusal.
    assert [bool(one["error"]) for one in seen].count(True) <= 2


@pytest.mark.parametrize("compaction", ["forward", "answer"])
@pytest.mark.parametrize("name", ["scripted", "OpenAI"])
def test_it_compacts_by_itself(provider, work, name, compaction):
    """It asks the provider to compact where that is named OpenAI, and any other for a summary."""
    settings = f'\n[responses]\ncompaction = "{compaction}"\n'
    with provider.proxy(False, settings) as url:
        events = work.run(url, name=name, more="model_context_window = 24000")
        with urllib.request.urlopen(f"{url}/metrics", timeout=LONG) as answer:
            metrics = answer.read().decode()
    seen = [one for one in provider.seen(work.task) if one["raw"] != "websocket"]
    assert [one["error"] for one in seen if one["error"]] == []
    assert events[-1]["type"] == "turn.completed", events[-1]
    assert work.is_done()
    answered = sum(int(count) for count in re.findall(r"plimsoll_compactions_total\{.*\} (\d+)", metrics))
    triggers = [one for one in seen if is_trigger(one)]
    if name == "scripted":
        assert kinds(seen).count("compaction") > 1 and not triggers and not answered
    elif compaction == "forward":
        assert len(triggers) > 1 and not answered
        assert any('"type":"compaction"' in one["raw"] for one in seen)
    else:
        assert answered > 1 and not triggers
        noted = [one for one in seen if "[Note by the context guard" in one["raw"]]
        assert noted and '"type":"compaction"' not in noted[-1]["raw"]
