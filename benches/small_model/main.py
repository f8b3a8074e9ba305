"""The bench itself: see `run`. Each answer becomes a line of answers.jsonl, which the table is made from; an interrupted
run has its table, too."""

import argparse
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import chats
import variants
from engine import count, running_engine
from harness import binary, serving
from relay import PATIENCE, Relay, post

# The share of the window that a history fills, and the shares from which the levels begin.
FILLED, CAUTION, CRITICAL = 0.66, 0.35, 0.97
# What the model's authors recommend.
SAMPLING = {"temperature": 0.2, "top_p": 0.9}

CONFIG = """
[server]
data_dir = "data"

[providers.local]
base_url = "http://127.0.0.1:{port}/v1"
auth = "none"
profile = "template"
ask_models = false
first_byte_timeout_ms = {patience}

[models."local/small"]
context_length = {window}
optimal_max_tokens = {caution}
critical_max_tokens = {critical}

[recovery]
language = "en"
"""


def parse_arguments():
    whole = [(2048, 1), (2048, 2), (2048, 3), (2048, 4), (2048, 5), (4096, 1), (8192, 1)]
    parser = argparse.ArgumentParser(prog="benches/small_model/run")
    parser.add_argument("--keep", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--windows", default=",".join(f"{window}:{seed}" for window, seed in whole),
                        help="windows in tokens, each with a seed")
    parser.add_argument("--variants", default=",".join(variants.ARMS), help="words@place, or off")
    parser.add_argument("--questions", type=int, default=len(chats.QUESTIONS), help="the first so many")
    parser.add_argument("--more", action="store_true", help="keep the answers of the last run beside the new ones")
    parser.add_argument("--table", action="store_true", help="only judge the written answers anew")
    parser.add_argument("--threads", type=int, default=1, help="threads of the engine")
    return parser.parse_args()


def read_pool(engine, keep):
    """The answers of the model to the topics, which every history is drawn from: written once."""
    written = keep / "history.json"
    known = json.loads(written.read_text()) if written.exists() else {}
    for topic in chats.TOPICS:
        if topic not in known:
            body = {"messages": begin_chat() + [say("user", topic)], "max_tokens": 256, "seed": 1, **SAMPLING}
            known[topic] = post(f"{engine}/v1/chat/completions", body)[1]["choices"][0]["message"]["content"]
            written.write_text(json.dumps(known, indent=1))
    return {topic: known[topic] for topic in chats.TOPICS}


def begin_chat():
    return [say("system", chats.SYSTEM)]


def say(role, content):
    return {"role": role, "content": content}


def make_history(engine, pool, window, seed):
    """Turns in the order of the seed, until the window is as full as it should be; their tokens; those before the last answer."""
    topics = list(pool)
    random.Random(seed).shuffle(topics)
    messages, filled = begin_chat(), 0
    for topic in topics:
        turn = [say("user", topic), say("assistant", pool[topic])]
        longer = count(engine, messages + turn)
        if longer > FILLED * window:
            break
        messages, filled = messages + turn, longer
    assert filled > CAUTION * window, "too few topics for this window"
    return messages, filled, count(engine, messages[:-1])


def knows_chats():
    """Whether the program has the setting that allows prompts in chats, which it may have off by default."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.toml").write_text("")
        listed = subprocess.run([binary(), "check"], cwd=folder, capture_output=True, text=True, check=False).stdout
    return "recovery.chats" in listed


def write_config(words, window, port, folder):
    """The settings of a proxy with these words for its caution prompt."""
    config = CONFIG.format(port=port, window=window, caution=int(CAUTION * window), critical=int(CRITICAL * window),
                           patience=PATIENCE * 1_000)
    text = variants.WORDS[words]
    if text:
        place = Path(folder, words, "en")
        place.mkdir(parents=True)
        (place / "caution-text.txt").write_text(text)
        config += f"prompts_dir = {json.dumps(str(place.parent))}\n"
    if knows_chats():
        config += "chats = true\n"
    return config


def play(proxy, relay, history, arm, seed, question):
    """A chat whose window is full from its first answer on, so that the prompt is due beside the question."""
    messages, _, prompt = history
    _, _, place = arm.partition("@")
    relay.begin(messages, prompt, question, variants.PLACES[place or "end"])
    headers = {"x-plimsoll-session": f"{arm}-{seed}-{question}"}
    if arm == variants.OFF:
        headers["x-plimsoll-recovery"] = "off"
    # More than the relay asks for, see there.
    body = {"model": "local/small", "max_tokens": 72, "seed": seed, **SAMPLING}
    for sent in [messages[:-1], messages + [say("user", question)]]:
        _, done = post(f"{proxy}/v1/chat/completions", {**body, "messages": sent}, headers)
    answer = done["choices"][0]["message"]["content"] or ""
    assert bool(relay.notice) == (arm != variants.OFF), f"{arm}: the proxy added {relay.notice!r}"
    return {
        "question": question,
        "answer": answer,
        "said": relay.said,
    }


def run(options, out):
    windows = [tuple(map(int, one.split(":"))) for one in options.windows.split(",")]
    arms = options.variants.split(",")
    # Off has the built-in words: a header switches them off.
    words_of = {arm: arm.partition("@")[0] if "@" in arm else "shipped" for arm in arms}
    for window in dict.fromkeys(window for window, _ in windows):
        with ExitStack() as stack:
            engine = stack.enter_context(running_engine(window, options.threads, options.keep / "engine.log"))
            pool = read_pool(engine, options.keep)
            relay = Relay(engine)
            stack.callback(relay.server.shutdown)
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            proxies = {
                words: stack.enter_context(serving(write_config(words, window, relay.port, folder)))
                for words in dict.fromkeys(words_of.values())
            }
            for seed in [seed for one, seed in windows if one == window]:
                history = make_history(engine, pool, window, seed)
                for arm in arms:
                    began = time.monotonic()
                    for question in list(chats.QUESTIONS)[:options.questions]:
                        one = play(proxies[words_of[arm]], relay, history, arm, seed, question)
                        out.write(json.dumps({"window": window, "seed": seed, "arm": arm, **one}) + "\n")
                        out.flush()
                    print(f"window {window}, {history[1]} tokens, seed {seed}, {arm}: {time.monotonic() - began:.0f} s",
                          flush=True)


def print_table(written):
    """Shares of answers: about the question (the median of the seeds, the least and the most), about the prompt, and with
    a block of notes."""
    answers = {}
    for line in written.read_text().splitlines():
        one = json.loads(line)
        answers.setdefault((one["window"], one["arm"]), {}).setdefault(one["seed"], []).append(one)
    print(f"{'window':>6}  {'variant':<22} {'seeds':>5} {'about the question':>20} {'beside off':>10} {'the prompt':>11}"
          f" {'notes':>6}")
    for (window, arm), seeds in answers.items():
        shares = {seed: share(played, is_about) for seed, played in seeds.items()}
        off = answers.get((window, variants.OFF), {})
        ratios = [shares[seed] / share(off[seed], is_about) for seed in shares if share(off.get(seed, []), is_about)]
        ratio = f"{statistics.median(ratios):.2f}" if ratios else "-"
        every = [one for played in seeds.values() for one in played]
        spread = f"{statistics.median(shares.values()):.0%} ({min(shares.values()):.0%} to {max(shares.values()):.0%})"
        print(f"{window:>6}  {arm:<22} {len(seeds):>5} {spread:>20} {ratio:>10} {share(every, is_about_prompt):>11.0%}"
              f" {share(every, has_notes):>6.0%}")


def share(played, judge):
    return sum(map(judge, played)) / len(played) if played else 0


def is_about(one):
    return chats.is_about(one["answer"], chats.QUESTIONS[one["question"]])


def is_about_prompt(one):
    return bool(chats.NOTICE.search(one["answer"]))


def has_notes(one):
    return any("<continuation_package>" in said for said in one["said"])


def main():
    options = parse_arguments()
    written = options.keep / "answers.jsonl"
    # An ended run has its table, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if not options.table:
            with open(written, "a" if options.more else "w") as out:
                run(options, out)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    finally:
        print_table(written)


if __name__ == "__main__":
    main()
