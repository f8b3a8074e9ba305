// The openai SDK for Node with two providers behind one proxy.

import assert from "node:assert/strict";
import { setMaxListeners } from "node:events";
import { after, before, test } from "node:test";

import { PLACES, Task, WORDS } from "./contract.mjs";
import { PATIENCE, sdk, startTwo } from "./harness.mjs";

const openai = await sdk();
// The SDK's runner adds a listener for each step.
setMaxListeners(100);
const limit = { timeout: 2 * PATIENCE };
let two;

before(async () => (two = await startTwo()), limit);
after(() => two?.stop(), limit);

const LOOKUP = {
  type: "function",
  function: {
    name: "lookup",
    description: "An entry of the log",
    parameters: { type: "object", properties: { number: { type: "integer" } }, required: ["number"] },
  },
};
const user = (content) => ({ role: "user", content });

function clientOf({ path, key }, more = {}) {
  const settings = { baseURL: two.url + path, apiKey: key, maxRetries: 0, timeout: PATIENCE, ...more };
  return new openai.default(settings).chat.completions;
}

for (const place of PLACES) {
  const { model, path, provider } = place;

  test(`an answer and its headers: ${path} ${model}`, limit, async () => {
    const asked = clientOf(place).create({ model, messages: [user("Ahoy")] });
    const { data, response } = await asked.withResponse();
    assert.equal(data.choices[0].message.content, WORDS);
    assert.equal(response.headers.get("x-plimsoll-provider"), provider);
    assert.equal(response.headers.get("x-plimsoll-health"), "healthy");
    assert.equal(response.headers.get("x-plimsoll-context-limit"), "8192");
    assert.equal(response.headers.get("x-plimsoll-prompt-tokens"), String(data.usage.prompt_tokens));
  });

  test(`a stream: ${path} ${model}`, limit, async () => {
    const stream = clientOf(place).stream({ model, messages: [user("Ahoy")] });
    assert.equal(await stream.finalContent(), WORDS);
  });

  for (const stream of [false, true]) {
    test(`a loop past the window: ${path} ${model}, stream: ${stream}`, limit, async () => {
      const task = new Task();
      const lookup = ({ number }) => task.lookup(number);
      const description = { ...LOOKUP.function, parse: JSON.parse, function: lookup };
      const request = { model, stream, messages: [user(task.text)], tools: [{ type: "function", function: description }] };
      const runner = clientOf(place).runTools(request, { maxChatCompletions: 2 * task.steps.length });
      await task.check(two, provider, await runner.finalContent(), stream);
    });
  }

  test(`errors have their classes: ${path} ${model}`, limit, async () => {
    const unknown = clientOf(place).create({ model: `${model}-of-nobody`, messages: [user("hi")] });
    await assert.rejects(unknown, (error) => {
      assert.ok(error instanceof openai.NotFoundError, String(error));
      assert.equal(error.code, "model_not_found");
      return true;
    });
    const wrong = clientOf(place, { apiKey: "wrong" }).create({ model, messages: [user("hi")] });
    if (provider === "one") await assert.rejects(wrong, openai.AuthenticationError);
    // The proxy has the other provider's key, and does not forward the client's.
    else assert.ok((await wrong).choices.length);
  });
}
