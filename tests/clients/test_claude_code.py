"""Claude Code without a terminal, before a scripted provider: it reads, edits and writes files and runs commands, and
what they print is together more than the window.
"""

import itertools
import json
import os
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

from bound import bare, list_blocks
from harness import messages_provider
from scripted import count_words
from setups import set_up

CLAUDE = Path(__file__).resolve().parents[2] / "target/clients/claude-code/node_modules/.bin/claude"
MODEL = "plan-48k"
# Its thinking is bound to what stood before it.
BOUND = "claude-sonnet-5-5"
ALIAS = "sonnet-alias"
# What it takes where nobody names a model.
OWN_MODEL = "claude-opus-5-5"
WINDOW = 48_000
STEPS = 40
WITH_WINDOW = """
[models."{model}"]
context_length = {window}
"""
# Seconds for one run.
LONG = 240


def claude_code(home, url, prompt, model, *more, before=()):
    """Runs Claude Code to its end; its events. Without `url`, nothing here names the proxy or a model: what stands before
    its command does, or its file."""
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(home), "ANTHROPIC_API_KEY": "scripted", "IS_SANDBOX": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1"}
    flags = ["--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions", *more]
    if url:
        environment |= {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_SMALL_FAST_MODEL": model, "ANTHROPIC_DEFAULT_HAIKU_MODEL": model}
        flags += ["--model", model]
    run = subprocess.run([*before, CLAUDE, "-p", *flags], input=prompt, cwd=home / "work", env=environment,
                         capture_output=True, text=True, timeout=LONG, check=False)
    events = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    assert events, run.stderr
    return events


def starts():
    if not CLAUDE.exists():
        return "npm has installed no Claude Code"
    version = subprocess.run([CLAUDE, "--version"], capture_output=True, text=True, timeout=LONG, check=False)
    return None if version.returncode == 0 else f"Claude Code does not start: {version.stderr[:200]}"


@pytest.fixture(scope="module")
def provider():
    if reason := starts():
        pytest.skip(reason)
    with messages_provider(WINDOW) as running:
        yield running


class Work:
    """Files, and a plan of steps over them."""

    def __init__(self, home):
        self.task, self.home, self.folder = f"task{uuid.uuid4().hex[:8]}", home, home / "work"
        self.folder.mkdir()
        for number in range(STEPS):
            lines = (f"file {number}, line {at}: wind and rain, a rising tide\n" for at in range(160))
            (self.folder / f"{number}.txt").write_text("".join(lines))
        self.steps = [self.step(number) for number in range(STEPS)]

    def step(self, number):
        path = str(self.folder / f"{number}.txt")
        match number % 4:
            case 0:
                return [["Read", {"file_path": path}]]
            case 1:
                line = f"file {number - 1}, line 50: "
                changed = {"old_string": f"{line}wind and rain", "new_string": f"{line}sun"}
                return [["Edit", {"file_path": str(self.folder / f"{number - 1}.txt"), **changed}]]
            case 2:
                command = f"cat {number}.txt; grep -h sun *.txt > found"
                return [["Bash", {"command": command, "description": "Show a file"}]]
            case _:
                return [["Write", {"file_path": f"{path}.new", "content": f"note {number}\n"}]]

    def run(self, url, model=MODEL, **more):
        plan = json.dumps({"task": self.task, "steps": self.steps})
        return claude_code(self.home, url, f"Please do this work. <plan>{plan}</plan>", model, **more)

    def is_done(self):
        """The results of all steps, and the last command saw every edit before it."""
        quarter = len(self.steps) // 4
        found = (self.folder / "found").read_text() if (self.folder / "found").exists() else ""
        return found.count("sun") == quarter and len(list(self.folder.glob("*.new"))) == quarter


@pytest.fixture
def work(tmp_path):
    yield Work(tmp_path)
    shutil.rmtree(tmp_path, ignore_errors=True)


def results(events):
    entries = [one["message"]["content"] for one in events if one["type"] == "user"]
    return [one for content in entries for one in content if one["type"] == "tool_result"]


def test_it_is_refused_without_the_proxy(provider, work):
    work.run(provider.url)
    errors = [one["error"] for one in provider.seen(work.task) if one["error"]]
    assert errors and errors[0].startswith("prompt is too long"), errors
    assert not work.is_done()


def assert_ended(work, events, seen):
    """The work is done, no request was refused, and the guard cut unnoticed."""
    end = events[-1]
    assert (end["type"], end["subtype"], end["is_error"]) == ("result", "success", False)
    assert f"Done after {len(work.steps)} steps" in end["result"]
    assert work.is_done()
    answered = results(events)
    assert len(answered) == len(work.steps)
    assert [one for one in answered if one.get("is_error")] == []
    # Its own compaction was not needed.
    assert [one for one in events if one.get("subtype") == "compact_boundary"] == []
    assert [one["error"] for one in seen if one["error"]] == []
    assert "add_reminder" not in json.dumps(events)
    sent = [one["tokens"] for one in seen]
    assert any(after < before for before, after in itertools.pairwise(sent)), sent


@pytest.mark.parametrize("recovery", [True, False])
@pytest.mark.parametrize("model", [MODEL, BOUND])
def test_it_ends_its_work(provider, work, model, recovery):
    with provider.proxy(recovery) as url:
        events = work.run(url, model)
    seen = provider.seen(work.task)
    assert_ended(work, events, seen)
    own = [one for one in seen if "toolu_own" in one["raw"]]
    assert bool(own) == recovery
    assert len(seen) > STEPS + 1 if recovery else len(seen) == STEPS + 1
    if model == BOUND:
        assert_thinking_stays_between_cuts(seen)


def assert_thinking_stays_between_cuts(seen):
    """Each request has the thinking of the one before it, and newer, unless the proxy changed what stood there."""
    cuts = 0
    for before, now in itertools.pairwise(json.loads(one["raw"]) for one in seen):
        rest, thinking = list_rest(before), list_thinking(before)
        if list_rest(now)[: len(rest)] != rest or now["tools"] != before["tools"]:
            cuts += 1
        else:
            assert list_thinking(now)[: len(thinking)] == thinking
            assert len(list_thinking(now)) > len(thinking)
    assert 2 <= cuts <= 6


def list_thinking(body):
    return [one for one in all_blocks(body) if one["type"] == "thinking"]


def list_rest(body):
    return [one for one in all_blocks(body) if one["type"] != "thinking"]


def all_blocks(body):
    return [block for entry in bare(body["messages"]) for block in list_blocks(entry["content"])]


@pytest.mark.parametrize(("way", "model"), [("run", OWN_MODEL), ("connect", OWN_MODEL), ("connect", MODEL)])
def test_it_ends_its_work_as_a_command_sets_it_up(provider, work, way, model):
    file = work.home / ".claude/settings.json"
    file.parent.mkdir()
    file.write_bytes(b'{"env": {"MINE": "1"},\r\n\t"cleanupPeriodDays":9}')
    named = None if model == OWN_MODEL else model
    with set_up(way, "claude-code", work.home, provider.settings(), named) as before:
        events = work.run(None, before=before)
    seen = provider.seen(work.task)
    assert_ended(work, events, seen)
    assert {json.loads(one["raw"])["model"] for one in seen} == {model}


def count_tools(one):
    return count_words([json.loads(one["raw"])["tools"]])


@pytest.mark.parametrize("recovery", [True, False])
@pytest.mark.parametrize("window", [12, 16])
def test_its_tools_shrink_in_a_small_window(provider, work, window, recovery):
    """They alone take two thirds of the larger one, and the first request more than it holds."""
    model = f"plan-small-{window}k"
    work.steps = work.steps[:12]
    with provider.proxy(recovery, WITH_WINDOW.format(model=model, window=1_000 * window)) as url:
        events = work.run(url, model)
    seen = provider.seen(work.task)
    # The proxy counts fewer tokens than the provider, and learns that from a refusal.
    refused = [one for one in seen[:1] if one["error"]]
    assert bool(refused) == (window == 16)
    seen = seen[len(refused) :]
    assert_ended(work, events, seen)
    assert count_tools(seen[0]) < 4_500
    assert refused == [] or count_tools(refused[0]) > 10_000


@pytest.mark.parametrize(("model", "window"), [("plan-small-8k", 8_000), ("claude-haiku-5-5", 16_000)])
def test_it_is_told_when_a_window_is_too_small_for_it(work, model, window):
    """What it sends before any work is more than that, also with short descriptions of its tools, which a model with bound
    thinking does not get."""
    with messages_provider(window) as provider, provider.proxy(more=WITH_WINDOW.format(model=model, window=window)) as url:
        end = work.run(url, model)[-1]
        seen = provider.seen(work.task)
    assert end["is_error"]
    assert end["result"].startswith("Prompt is too long"), end["result"]
    assert f"the request is ~{seen[-1]['tokens']} tokens (limit {window})" in end["result"]
    assert len(seen) == 1


def test_it_keeps_its_thinking_where_the_proxy_changes_the_name_of_the_model(provider, work):
    """Where an answer names another model than the one that it asked for, it leaves all thinking out of the next turn."""
    work.steps = work.steps[:4]
    with provider.proxy(more=f'\n[aliases]\n{ALIAS} = "{BOUND}"\n') as url:
        work.run(url, ALIAS)
        claude_code(work.home, url, "And once more, please.", ALIAS, "--continue")
    seen = provider.seen(work.task)
    assert [one["error"] for one in seen if one["error"]] == []
    before, now = (json.loads(one["raw"]) for one in seen[-2:])
    assert (before["model"], now["model"]) == (BOUND, BOUND)
    assert "And once more, please." in json.dumps(now["messages"][-1])
    assert len(list_thinking(now)) == len(list_thinking(before)) + 1 == len(work.steps) + 2
