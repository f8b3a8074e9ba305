#!/usr/bin/env python3
"""catalogue.py DATE FILE...  >  src/provider/catalogue.tsv

Writes the built-in table of windows: for each provider and model, tokens of the window, of the largest prompt and of
the largest answer. Each FILE is one of these, told apart by its form:

- the table itself, so that what is known stays;
- `api.json` of models.dev (MIT);
- `model_prices_and_context_window.json` of litellm (MIT), which its wheel has as `..._backup.json`;
- a list of facts with `source` and `providers`, whose models have `context`, `input` and `output`.

Where several know a model, the first one counts: litellm writes the window of some models and the largest prompt of
others under the same name. The same files give the same bytes. DATE is the day of the newest file, as 2026-11-24.
Models that no list has are kept by hand in `catalogue_more.tsv`.
"""
import datetime
import json
import os
import re
import sys

# A window below this is no chat model's.
LEAST_WINDOW = 1024

# litellm's names of providers, with those of models.dev.
LITELLM_PROVIDERS = {
    "anthropic": "anthropic", "azure": "azure", "azure_ai": "azure", "baseten": "baseten", "bedrock": "amazon-bedrock",
    "bedrock_converse": "amazon-bedrock", "cerebras": "cerebras", "cohere": "cohere", "cohere_chat": "cohere",
    "dashscope": "alibaba", "deepinfra": "deepinfra", "deepseek": "deepseek", "fireworks_ai": "fireworks-ai",
    "gemini": "google", "groq": "groq", "minimax": "minimax", "mistral": "mistral", "moonshot": "moonshotai",
    "novita": "novita-ai", "nvidia_nim": "nvidia", "openai": "openai", "openrouter": "openrouter",
    "perplexity": "perplexity", "siliconflow": "siliconflow", "stepfun": "stepfun", "together_ai": "togetherai",
    "vercel_ai_gateway": "vercel", "vertex_ai-anthropic_models": "google-vertex",
    "vertex_ai-language-models": "google-vertex", "xai": "xai", "zai": "zai",
}

HEAD = """\
# Windows of known models, in tokens: provider, model, context, input, output, parted by tabs.
# input: the largest prompt, where it is lower than the window. output: the largest answer. Empty: not known.
# Names are in lower case; rows are sorted. Made by tools/catalogue.py.
# date: %s
# since: %d
"""


def tokens(value):
    return value if type(value) is int and value > 0 else None


def read_table(text):
    rows = [line.split("\t") for line in text.splitlines() if not line.startswith("#")]
    facts = {(p, m): tuple(int(n) if n else None for n in numbers) for p, m, *numbers in rows}
    return re.findall(r"^# from: (.*)$", text, re.M), facts


def read_models(providers, limits):
    """Facts of `providers`, where `limits` finds context, input and output of a model."""
    return {(p, m): tuple(tokens(limits(f).get(key)) for key in ("context", "input", "output"))
            for p, models in providers.items() for m, f in models.items()}


def read_litellm(models):
    facts = {}
    for key, f in models.items():
        provider, parts = LITELLM_PROVIDERS.get(f.get("litellm_provider")), key.split("/")
        if not provider or f.get("mode") not in ("chat", "responses", "completion") or key.startswith("ft:"):
            continue
        if parts[0] in (f["litellm_provider"], f["litellm_provider"].split("-")[0], "azure", "bedrock"):
            parts = parts[1:]
        if provider in ("amazon-bedrock", "azure") and len(parts) != 1:
            continue  # Rows by region differ in price only.
        window, answer = tokens(f.get("max_input_tokens")), tokens(f.get("max_output_tokens"))
        prompt = None
        # Windows of OpenAI's newer models are full thousands of fifty; other numbers are the largest prompt alone.
        if window and answer and window > 200_000 and re.search(r"(^|\.)gpt-[5-9]", parts[-1]):
            window, prompt = (window, window - answer) if window % 50_000 == 0 else (window + answer, window)
        facts[provider, "/".join(parts)] = (window, prompt, answer)
    return facts


def read_file(path):
    """The sources that a file names, and its facts."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    name = os.path.basename(path)
    if not text.lstrip().startswith("{"):
        return read_table(text)
    data = json.loads(text)
    if "providers" in data:
        licence = data.get("licence", "licence unknown")
        return ["%s (%s)" % (source, licence) for source in data["source"]], read_models(data["providers"], lambda f: f)
    if any("litellm_provider" in f for f in data.values()):
        return ["litellm, %s (MIT)" % name], read_litellm(data)
    models = {provider: f.get("models", {}) for provider, f in data.items()}
    return ["models.dev, %s (MIT)" % name], read_models(models, lambda f: f.get("limit") or {})


def main(date, paths):
    since = datetime.datetime.fromisoformat(date + "T00:00:00+00:00").timestamp()
    sources, table = [], {}
    for path in paths:
        named, facts = read_file(path)
        sources += [source for source in named if source not in sources]
        # Of names that differ by case only, that in lower case counts.
        by_case = lambda fact: (fact[0][1] != fact[0][1].lower(), fact[0])
        for (provider, model), (window, prompt, answer) in sorted(facts.items(), key=by_case):
            if provider == "google-vertex":
                model = model.removeprefix("vertex_ai/")
            row = (provider.lower(), model.lower())
            if window and window >= LEAST_WINDOW and row[1] and not re.search(r"[\t\n]", model):
                table.setdefault(row, (window, prompt if prompt and prompt < window else None, answer))
    lines = ["\t".join([*row, *("" if n is None else str(n) for n in table[row])]) for row in sorted(table)]
    sys.stdout.write(HEAD % (date, since) + "".join("# from: %s\n" % source for source in sources) + "\n".join(lines) + "\n")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:])
