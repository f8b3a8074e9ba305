"""The bench itself: see `run`. Each request becomes a line of steps.jsonl, which the table is made from; an interrupted
run has its table, too."""

import argparse
import json
import random
import signal
import statistics
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from pydoc_data.topics import topics

from engine import count, running_engine
from harness import serving
from relay import PATIENCE

# Tokens of an answer at most, which ends with its first sentence. The proxy takes a request with less than 65 and no tools
# for one that makes a title.
ANSWER, END = 72, "."
# A user's message is so much of the window, so that some 13 steps fill it.
SHARE = 1 / 16
# Characters of a token in English prose, for how much text a message quotes.
CHARACTERS = 4.4

CONFIG = """
[server]
data_dir = "data"

[providers.local]
base_url = "{engine}/v1"
auth = "none"
profile = "template"
ask_models = false
first_byte_timeout_ms = {patience}

[models."local/small"]
context_length = {window}
"""

NOBODY, OLDEST, HALF, PROXY = "nobody", "drop oldest", "drop half", "plimsoll"


def parse_arguments():
    parser = argparse.ArgumentParser(prog="benches/engine/run")
    parser.add_argument("--keep", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--windows", default="2048,4096,8192", help="in tokens")
    parser.add_argument("--variants", default=",".join([NOBODY, OLDEST, HALF, PROXY]))
    parser.add_argument("--steps", type=int, default=26, help="the user's messages of a session")
    parser.add_argument("--threads", type=int, default=2, help="threads of the engine")
    parser.add_argument("--table", action="store_true", help="only print the table of the last run")
    return parser.parse_args()


class Session:
    """A chat that grows, at an engine of its own: the other chats take nothing out of its cache."""

    def __init__(self, variant, window, engine, address):
        self.variant, self.window, self.engine, self.address = variant, window, engine, address
        self.messages = [{"role": "system", "content": "You are a helpful assistant."}]
        self.refused = None

    def step(self, question):
        self.messages.append({"role": "user", "content": question})
        if self.variant in (OLDEST, HALF):
            self.make_room()
        try:
            done = ask(self.address, self.messages)
        except urllib.error.HTTPError as error:
            self.refused = f"{error.code}: {error.read().decode()[:300]}"
            return {"refused": self.refused}
        self.messages.append({"role": "assistant", "content": done.pop("text")})
        return done

    def make_room(self):
        """Drops what is oldest, by the engine's own count, so that an answer fits as well: no more than needed, or half of all
        but the system message. The rest begins with a message of the user's."""
        while count(self.engine, self.messages) + ANSWER > self.window:
            history = self.messages[1:]
            dropped = 2 if self.variant == OLDEST else max(2, len(history) // 4 * 2)
            self.messages = [self.messages[0], *history[dropped:]]


def ask(address, messages):
    """Seconds to the first token and to the end, and what the engine says that it computed and found in its cache."""
    body = {"model": "local/small", "messages": messages, "max_tokens": ANSWER, "stop": [END], "temperature": 0, "seed": 1,
            "stream": True, "stream_options": {"include_usage": True}}
    request = urllib.request.Request(f"{address}/v1/chat/completions", json.dumps(body).encode(),
                                     {"content-type": "application/json"})
    began, first, text, timings = time.monotonic(), None, "", {}
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            said = event["choices"][0]["delta"].get("content") if event["choices"] else None
            if said:
                first = first or time.monotonic() - began
                text += said
            timings = event.get("timings") or timings
    return {"text": text, "first": first or time.monotonic() - began, "whole": time.monotonic() - began,
            "computed": timings["prompt_n"], "cached": timings["cache_n"]}


def make_questions(window, steps):
    """Different passages of Python's own manual, the same for each variant."""
    length = int(window * SHARE * CHARACTERS)
    text = "\n\n".join(topics[name] for name in sorted(topics))
    passages = [text[at:at + length] for at in range(0, len(text) - length, length)]
    random.Random(window).shuffle(passages)
    return [f"What does this part of the manual say?\n\n{passage}" for passage in passages[:steps]]


def run(options, out):
    for window in map(int, options.windows.split(",")):
        with ExitStack() as stack:
            sessions = []
            for variant in options.variants.split(","):
                log = options.keep / f"{variant.replace(' ', '-')}.log"
                engine = address = stack.enter_context(running_engine(window, options.threads, log))
                if variant == PROXY:
                    config = CONFIG.format(engine=engine, window=window, patience=PATIENCE * 1_000)
                    address = stack.enter_context(serving(config))
                sessions.append(Session(variant, window, engine, address))
            for at, question in enumerate(make_questions(window, options.steps)):
                # One after the other, so that they share what else happens on the machine.
                for session in (one for one in sessions if not one.refused):
                    one = {"window": window, "variant": session.variant, "step": at, **session.step(question)}
                    out.write(json.dumps(one) + "\n")
                    out.flush()
                    print(one, flush=True)


def print_table(written):
    """A row a window and variant. Waits are those from the step on that nobody's window had no room for: before it, all
    variants send the same."""
    rows = {}
    for line in written.read_text().splitlines():
        one = json.loads(line)
        rows.setdefault((one["window"], one["variant"]), []).append(one)
    print("| window, tokens | way | steps answered | first token once full, s: median | ninth tenth | all waits, s "
          "| computed, tokens | prompts, tokens |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for (window, variant), every in rows.items():
        answered = [one for one in every if "first" in one]
        refused = [one["step"] for one in rows.get((window, NOBODY), []) if "refused" in one]
        full = [one["first"] for one in answered if refused and one["step"] >= refused[0]]
        middle = f"{statistics.median(full):.1f}" if full else ""
        ninth = f"{statistics.quantiles(full, n=10)[8]:.1f}" if len(full) > 1 else ""
        computed = sum(one["computed"] for one in answered)
        prompts = computed + sum(one["cached"] for one in answered)
        print(f"| {window:,} | {variant} | {len(answered)} | {middle} | {ninth} | {sum(one['first'] for one in answered):.0f}"
              f" | {computed:,} | {prompts:,} |")


def main():
    options = parse_arguments()
    written = options.keep / "steps.jsonl"
    # An ended run has its table, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if not options.table:
            with open(written, "w") as out:
                run(options, out)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    finally:
        print_table(written)


if __name__ == "__main__":
    main()
