"""Reasoning that is bound to what stood before it, as Anthropic's "Preserved thinking" and OpenAI's "Preserved
reasoning" have it. Whatever a check needs stands in the signature itself, so that it shares nothing with the proxy.
"""

import hashlib
import json
import re

from scripted import Refused

# Names of models that have it.
BOUND = re.compile(r"claude-\w+-5-5|gpt-6\.2")
STALE = ("messages.{}.content.{}: Invalid `signature` in `thinking` block. The block is bound to a different "
         "conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\".")


def is_bound(model):
    return bool(BOUND.search(model))


def digest(*parts):
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def bare(value):
    """Without markers of the cache."""
    if isinstance(value, dict):
        return {key: bare(one) for key, one in value.items() if key != "cache_control"}
    return [bare(one) for one in value] if isinstance(value, list) else value


def list_blocks(content):
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def sign(thought, bound):
    return ".".join([*bound, digest(thought, bound)])


class Conversation:
    """What the thinking of one request is bound to, read block by block."""

    def __init__(self, body):
        tools = [one for one in body.get("tools") or [] if not one.get("defer_loading")]
        self.before = digest(bare(list_blocks(body.get("system") or [])), bare(tools))
        # The id of the newest thinking, and how many there are.
        self.newest, self.run = "none", 0
        for at, entry in enumerate(body["messages"]):
            self.begin(entry["role"])
            for place, block in enumerate(list_blocks(entry["content"])):
                if not self.accepts(block):
                    raise Refused(STALE.format(at, place))
                self.add(block)
        self.begin("assistant")

    def begin(self, role):
        self.before = digest(self.before, role)

    def add(self, block):
        if block["type"] == "thinking":
            self.newest, self.run = digest(block["signature"]), self.run + 1
        else:
            self.before = digest(self.before, bare(block))

    def accepts(self, block):
        """Whether the block stands where it was made, or is no thinking. The oldest may be left out, none in the midst,
        and none is put back."""
        if block["type"] != "thinking":
            return True
        *bound, _ = block["signature"].split(".")
        if block["signature"] != sign(block["thinking"], bound):
            return False
        before, newest, run = bound
        return before == self.before and (self.run == 0 or newest == self.newest and int(run) >= self.run)

    def think(self, content):
        """Signs the thinking of an answer."""
        for block in content:
            if block["type"] == "thinking":
                block["signature"] = sign(block["thinking"], [self.before, self.newest, str(self.run)])
            self.add(block)


def seal_input(body, given):
    """Of each reasoning item of the input, and of the answer's behind it, what it is bound to. Top-level `instructions`
    are no part of it, nor is what clients leave out when they send an item back."""
    before, seals = digest(body.get("tools"), (body.get("text") or {}).get("format")), []
    for item in given:
        seals.append(before)
        if item.get("type") != "reasoning":
            sent = {key: one for key, one in item.items() if key not in ("id", "status")}
            before = digest(before, {"type": "message", **sent})
    return [*seals, before]


def list_dropped(body, given):
    """The ids of reasoning whose prefix has changed."""
    reasoning = zip(given, seal_input(body, given), strict=False)
    reasoning = ((one, seal) for one, seal in reasoning if one.get("type") == "reasoning")
    return [one["id"] for one, seal in reasoning if not one["encrypted_content"].endswith(f".{seal}")]
