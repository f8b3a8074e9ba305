"""The places and words of the caution prompt that are compared.

Words reach the proxy as its settings do (`recovery.prompts_dir`). Other places are made behind the proxy, in what it
sent, since no setting has them.
"""

PACKAGE = "<continuation_package>…</continuation_package>"

# The text for requests without tools; None: the one that is built in.
WORDS = {
    "shipped": None,
    "short": f"[Context notice, not from the user.] First answer the user's message above. Then add {PACKAGE} with a few "
    "notes to go on from.",
    "mild": f"(A note by the context guard between client and model, which the user does not see. Answer the message above as "
    f"usual. Behind the answer, add a block {PACKAGE} from which the work could be picked up alone: first actionable "
    "step; key pointers; how to run and verify; details easy to lose. The guard keeps it for when older messages have "
    "to go.)",
    "aside": f"(When the message above is answered, and only then, add your notes as {PACKAGE}.)",
}


def stay(messages, _, __):
    return messages


def stand_before(messages, question, notice):
    """In the user's message, before the question."""
    return [*messages[:-1], {**messages[-1], "content": f"{notice}\n\n{question}"}]


def repeat_question(messages, question, notice):
    """At the end of the user's message, with the question once more behind it."""
    again = f"{question}\n\n{notice}\n\nThe user's message, to be answered first: {question}"
    return [*messages[:-1], {**messages[-1], "content": again}]


def stand_apart_behind(messages, question, notice):
    """As a system message behind the user's."""
    return [*messages[:-1], {**messages[-1], "content": question}, {"role": "system", "content": notice}]


def stand_apart_before(messages, question, notice):
    """As a system message before the user's."""
    return [*messages[:-1], {"role": "system", "content": notice}, {**messages[-1], "content": question}]


def stand_in_system(messages, question, notice):
    """At the end of the system text, which costs the whole prefix of the cache."""
    system = {**messages[0], "content": f"{messages[0]['content']}\n\n{notice}"}
    return [system, *messages[1:-1], {**messages[-1], "content": question}]


PLACES = {
    "end": stay,
    "before": stand_before,
    "again": repeat_question,
    "system-behind": stand_apart_behind,
    "system-before": stand_apart_before,
    "system-text": stand_in_system,
}

# Without a prompt, as shipped, and what is tried beside it. The engine's cache wants those of the system text last.
OFF = "off"
ARMS = [
    OFF,
    "shipped@end",
    "short@end",
    "mild@end",
    "aside@end",
    "shipped@before",
    "mild@before",
    "aside@before",
    "shipped@system-before",
    "shipped@system-text",
]
