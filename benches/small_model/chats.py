"""What the chats are about, and which answers are about a question. No topic of the history is that of a question."""

import re

SYSTEM = "You are a helpful assistant."

# The history: the model itself answers these once, and each seed draws from them.
TOPICS = [
    "How is bread made?",
    "Why do cats purr?",
    "Describe a walk through a forest in winter.",
    "What should I pack for a week of hiking?",
    "How does a bicycle stay upright?",
    "Tell me a short story about a lighthouse keeper.",
    "What makes a good public library?",
    "How do I start a vegetable garden?",
    "Explain how a piano makes its sound.",
    "What are the advantages of travelling by train?",
    "How can I learn to draw?",
    "Describe a busy harbour in the morning.",
    "What is pottery, and how is it done?",
    "How do I take care of leather shoes?",
    "Why do people enjoy board games?",
    "Tell me about the life of a beekeeper.",
    "How is glass made?",
    "What helps against stage fright?",
    "Describe the work of a carpenter.",
    "How do I choose a tent?",
    "What is the history of the umbrella?",
    "How do I organise a small wedding?",
    "What can one see in a museum of ships?",
    "How do I clean a woollen carpet?",
]

# Each with the beginnings of words of which an answer about it has at least one.
QUESTIONS = {
    "What is the capital of France?": "france paris french",
    "Why is the sky blue?": "sky blue scatter sunlight",
    "How do I boil an egg?": "egg boil",
    "Which planet is the largest in the solar system?": "planet jupiter solar",
    "What do cows eat?": "cow grass hay graz",
    "Give me a recipe for pancakes.": "pancake flour batter milk",
    "Write two lines of a poem about the sea.": "sea wave ocean shore tide",
    "What is a volcano?": "volcan lava magma erupt",
    "How many days are in a week?": "seven 7 day week",
    "Who wrote Romeo and Juliet?": "shakespeare romeo juliet",
    "What is the difference between a frog and a toad?": "frog toad",
    "Name three colours of the rainbow.": "rainbow red orange yellow green blue violet indigo",
    "Why do we need sleep?": "sleep rest",
    "What is the freezing point of water?": "water freez celsius fahrenheit ice",
    "Suggest a name for a small coffee shop.": "coffee cafe café brew bean",
    "How do vaccines work?": "vaccin immun antibod virus",
    "What is democracy?": "democra people government vot",
    "What is the square root of 81?": "square root nine 9",
    "Translate 'good morning' into Spanish.": "spanish buenos días dias morning",
    "What are the three states of matter?": "matter solid liquid gas",
}

# Words of the prompts, in answers to none of the questions.
NOTICE = re.compile(
    r"continuation|package|context (notice|note|guard|window)|\bguard|\bnotice|\bnotes?\b|reminder|actionable|pointers"
    r"|older message|\btokens?\b|new (request|task)|\bthe (prompt|reply|user)\b|\bas a (model|client)\b",
    re.IGNORECASE,
)


def is_about(answer, words):
    """Whether an answer is about its question: one of the words, and nothing of the prompt."""
    begins = "|".join(map(re.escape, words.split()))
    return bool(re.search(rf"\b({begins})", answer, re.IGNORECASE)) and not NOTICE.search(answer)
