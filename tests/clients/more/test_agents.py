"""Agents that nothing but their environment or their own file points at the proxy, each past its model's window, with the
tools executed.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from aider_model import AiderModel
from contract import STEPS, Task
from harness import Scripted, serving, two_providers

HERE = Path(__file__).resolve().parent
PLACE = HERE.parents[2] / "target/clients/more"
MODEL, KEY = "one/model-a", "one-key"
# Seconds for one run.
LONG = 300
# What each agent of a framework is run by; its script stands beside this file.
FRAMEWORKS = {
    "LangChain": [PLACE / "venv/bin/python", HERE / "langchain_agent.py"],
    "LlamaIndex": [PLACE / "llama/bin/python", HERE / "llama_index_agent.py"],
    "pydantic-ai": [PLACE / "venv/bin/python", HERE / "pydantic_agent.py"],
    "Vercel AI SDK": ["node", PLACE / "node/vercel-agent.mjs"],
}


def run(command, folder, prompt, **environment):
    """Runs a client in the folder, which is its home, too; what it printed."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(HERE), **environment}
    done = subprocess.run(command, input=prompt, cwd=folder, env=environment, capture_output=True, text=True, timeout=LONG,
                          check=False)
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    return done.stdout


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_frameworks(tmp_path, name):
    program, script = FRAMEWORKS[name]
    if script.parent != HERE:
        shutil.copy(HERE / script.name, script)
    task = Task(2 * STEPS)
    numbers = [call[1]["number"] for step in task.steps for call in step]
    for number in numbers:
        (tmp_path / f"{number}.txt").write_text(task.lookup(number))
    with two_providers(window=16384) as two:
        command = [program, script, MODEL]
        said = run(command, tmp_path, task.text, OPENAI_BASE_URL=f"{two.url}/v1", OPENAI_API_KEY=KEY)
        task.asked = list(map(int, (tmp_path / "asked").read_text().split()))
        task.check(two, "one", said, streamed=name == "LlamaIndex")


def test_opencode(tmp_path):
    """It reads files that are together larger than the window, and its shell sees each of them."""
    task = Task()
    task.steps = []
    for number in range(STEPS):
        (tmp_path / f"{number}.txt").write_text(f"file {number}: wind and rain, a rising tide\n" * 300)
        task.steps.append([["read", {"filePath": str(tmp_path / f"{number}.txt")}]])
    task.steps.append([["bash", {"command": "cat *.txt | wc -l > found", "description": "Counts lines"}]])
    with two_providers(window=49152) as two:
        model = {"name": "A", "limit": {"context": 1_000_000, "output": 1024}}
        provider = {"npm": "@ai-sdk/openai-compatible", "name": "Plimsoll", "models": {MODEL: model},
                    "options": {"baseURL": f"{two.url}/v1", "apiKey": KEY}}
        settings = {"provider": {"plimsoll": provider}, "permission": "allow", "autoupdate": False, "share": "disabled"}
        (tmp_path / "opencode.json").write_text(json.dumps(settings))
        command = [PLACE / "node/node_modules/.bin/opencode", "run", "--model", f"plimsoll/{MODEL}"]
        said = run(command, tmp_path, task.text, OPENCODE_DISABLE_MODELS_FETCH="1", OPENCODE_DISABLE_AUTOUPDATE="1",
                   OPENCODE_DISABLE_LSP_DOWNLOAD="1")
        seen = [one for one in two.seen(task.name) if one["messages"] > 2]
        assert f"Done after {STEPS + 1} steps" in said, said
        assert (tmp_path / "found").read_text().strip() == str(300 * STEPS)
        assert [one["error"] for one in seen if one["error"]] == []
        sent = [one["tokens"] for one in seen]
        assert any(later < earlier for earlier, later in zip(sent, sent[1:], strict=False)), sent


def test_aider(tmp_path):
    """It has no tools; it writes the files that the model names, and each goes into its next requests."""
    provider = Scripted()
    model = provider.server.RequestHandlerClass = type("Model", (AiderModel,), {"provider": provider})
    with serving(model.settings(provider.port)) as url:
        flags = ["--yes-always", "--no-git", "--no-check-update", "--no-show-model-warnings", "--no-pretty",
                 "--no-fancy-input", "--edit-format", "diff", "--analytics-disable", "--no-show-release-notes"]
        asked = "".join(f"Write file{number}.txt, please.\n" for number in range(AiderModel.FILES))
        said = run([PLACE / "aider/bin/aider", "--model", "openai/local/aider", *flags], tmp_path, asked,
                   OPENAI_API_BASE=f"{url}/v1", OPENAI_API_KEY="unused", LITELLM_LOCAL_MODEL_COST_MAP="True")
    provider.stop()
    for number in range(AiderModel.FILES):
        assert (tmp_path / f"file{number}.txt").exists(), said[-3_000:]
    assert not any(one["refused"] for one in provider.requests)
    written = [len(one["raw"]) // 4 for one in provider.requests]
    assert any(later < earlier for earlier, later in zip(written, written[1:], strict=False)), written
