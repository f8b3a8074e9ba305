"""Agents that nothing but `plimsoll run` or `plimsoll connect --write` points at the proxy, each past its model's window, with
the tools executed.
"""

from pathlib import Path

import pytest

from aider_model import AiderModel
from harness import Scripted, bare_providers
from setups import OWN_MODELS, TOLD, Reading, assert_cut, play, play_library, set_up

PLACE = Path(__file__).resolve().parents[3] / "target/clients/more"
OPENCODE = PLACE / "node/node_modules/.bin/opencode"


def test_llama_index(tmp_path):
    with bare_providers(16_384) as (two, config):
        play_library(PLACE / "llama/bin/python", "llama_index_agent.py", tmp_path, two, config, "one/model-a", "one-key", True)


def play_opencode(way, home, provider, config, model, key, told=None):
    """It reads files that are together larger than the window, and its shell counts their lines."""
    file = home / ".config/opencode/opencode.json"
    file.parent.mkdir(parents=True)
    file.write_bytes(b'// mine\r\n{"permission": "allow",  "autoupdate": false,\r\n  "share": "disabled",}')
    task = Reading(home / "work", "filePath", description="Counts lines")
    with set_up(way, "opencode", home, config, model, told) as before:
        name = f"plimsoll/{model}" if way == "connect" else model
        said = play([*before, OPENCODE, "run", "--model", name], home, task.text, home / "work", PLIMSOLL_KEY=key,
                    OPENAI_API_KEY=key, ANTHROPIC_API_KEY=key, OPENCODE_DISABLE_MODELS_FETCH="1",
                    OPENCODE_DISABLE_AUTOUPDATE="1", OPENCODE_DISABLE_LSP_DOWNLOAD="1")
    task.check_read(provider, said)


@pytest.mark.parametrize(("provider", "model", "window"), OWN_MODELS)
def test_opencode_by_run(tmp_path, provider, model, window):
    with provider(window) as running:
        play_opencode("run", tmp_path, running, running.settings(), model, "scripted")


@pytest.mark.parametrize("told", TOLD)
def test_opencode_by_connect(tmp_path, told):
    with bare_providers(49_152) as (two, config):
        play_opencode("connect", tmp_path, two, config, "one/model-a", "one-key", told)


@pytest.mark.parametrize("way", ["run", "connect"])
def test_aider(tmp_path, way):
    """It has no tools; it writes the files that the model names, and each goes into its next requests."""
    provider = Scripted()
    model = provider.server.RequestHandlerClass = type("Model", (AiderModel,), {"provider": provider})
    flags = ["--yes-always", "--no-git", "--no-check-update", "--no-show-model-warnings", "--no-pretty", "--no-fancy-input",
             "--edit-format", "diff", "--analytics-disable", "--no-show-release-notes"]
    # Its file names the model, where connect has written it.
    flags += [] if way == "connect" else ["--model", "openai/local/aider"]
    asked = "".join(f"Write file{number}.txt, please.\n" for number in range(AiderModel.FILES))
    (tmp_path / "work").mkdir()
    with set_up(way, "aider", tmp_path, model.settings(provider.port), "local/aider") as before:
        said = play([*before, PLACE / "aider/bin/aider", *flags], tmp_path, asked, tmp_path / "work", OPENAI_API_KEY="unused",
                    LITELLM_LOCAL_MODEL_COST_MAP="True")
    provider.stop()
    for number in range(AiderModel.FILES):
        assert (tmp_path / "work" / f"file{number}.txt").exists(), said[-3_000:]
    assert not any(one["refused"] for one in provider.requests)
    assert_cut([{"tokens": len(one["raw"]) // 4} for one in provider.requests])
