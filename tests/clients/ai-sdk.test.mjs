// The Vercel AI SDK with two providers behind one proxy, with both of its packages for this API.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { PLACES, Task, WORDS } from "./contract.mjs";
import { PATIENCE, sdk, startTwo } from "./harness.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;
const { APICallError, generateText, jsonSchema, stepCountIs, streamText, tool } = await sdk("ai");
const { createOpenAI } = await sdk("@ai-sdk/openai");
const { createOpenAICompatible } = await sdk("@ai-sdk/openai-compatible");
const limit = { timeout: 2 * PATIENCE };
let two;

before(async () => (two = await startTwo()), limit);
after(() => two?.stop(), limit);

const PACKAGES = {
  "@ai-sdk/openai": (settings, model) => createOpenAI(settings).chat(model),
  "@ai-sdk/openai-compatible": (settings, model) =>
    createOpenAICompatible({ ...settings, name: "plimsoll", includeUsage: true }).chatModel(model),
};

// No retries by the SDK.
function asking(name, { path, key, model }, more = {}) {
  const settings = { baseURL: two.url + path, apiKey: more.key ?? key };
  const abortSignal = AbortSignal.timeout(PATIENCE);
  return { model: PACKAGES[name](settings, more.model ?? model), maxRetries: 0, abortSignal };
}

function working(task) {
  const lookup = tool({
    description: "An entry of the log",
    inputSchema: jsonSchema({ type: "object", properties: { number: { type: "integer" } }, required: ["number"] }),
    execute: ({ number }) => task.lookup(number),
  });
  return { prompt: task.text, tools: { lookup }, stopWhen: stepCountIs(2 * task.steps.length) };
}

for (const name of Object.keys(PACKAGES)) {
  for (const place of PLACES) {
    const { model, path, provider } = place;
    const here = `${name} at ${path} ${model}`;

    test(`an answer and its headers: ${here}`, limit, async () => {
      const { text, usage, response } = await generateText({ ...asking(name, place), prompt: "Ahoy" });
      assert.equal(text, WORDS);
      assert.equal(response.headers["x-plimsoll-provider"], provider);
      assert.equal(response.headers["x-plimsoll-health"], "healthy");
      assert.equal(response.headers["x-plimsoll-prompt-tokens"], String(usage.inputTokens));
    });

    test(`a stream: ${here}`, limit, async () => {
      const result = streamText({ ...asking(name, place), prompt: "Ahoy" });
      const pieces = [];
      for await (const piece of result.textStream) pieces.push(piece);
      assert.equal(pieces.join(""), WORDS);
      assert.ok(pieces.length > 2);
      assert.ok((await result.usage).inputTokens > 0);
      assert.equal((await result.response).headers["x-plimsoll-provider"], provider);
    });

    test(`a loop past the window: ${here}`, limit, async () => {
      const task = new Task();
      const { text } = await generateText({ ...asking(name, place), ...working(task) });
      await task.check(two, provider, text);
    });

    test(`a streamed loop past the window: ${here}`, limit, async () => {
      const task = new Task();
      const result = streamText({ ...asking(name, place), ...working(task) });
      await result.consumeStream();
      await task.check(two, provider, await result.text, true);
    });

    test(`errors have their statuses: ${here}`, limit, async () => {
      const status = (expected) => (error) => {
        assert.ok(APICallError.isInstance(error), String(error));
        assert.equal(error.statusCode, expected);
        return true;
      };
      const unknown = asking(name, place, { model: `${model}-of-nobody` });
      await assert.rejects(generateText({ ...unknown, prompt: "hi" }), status(404));
      if (provider !== "one") return;
      const wrong = asking(name, place, { key: "wrong" });
      await assert.rejects(generateText({ ...wrong, prompt: "hi" }), status(401));
    });
  }
}
