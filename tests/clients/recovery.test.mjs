// Tool loops of the openai SDK with tool rounds by the proxy: no loop ends early, and the client
// sees only its own calls.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, test } from "node:test";

import { CITIES, OWN, PATIENCE, RECOVERY, Scripted, TEXT, names, sdk, startProxy } from "./harness.mjs";

const openai = await sdk();
const OpenAI = openai.default;
const limit = { timeout: 2 * PATIENCE };
// Half of the window, so that the second request is past the optimal limit.
const TASK = [
  { role: "user", content: "What is there to mind?" },
  // What can go is no part of the task.
  { role: "assistant", content: "Mind the tides and the winds. ".repeat(1_100) },
  { role: "user", content: "Tell me the weather of every harbour." },
];
// Requests of a loop: one for each city, and the final text.
const LOOP = CITIES.length + 1;

let provider, proxy, client;

before(async () => {
  provider = await new Scripted().start();
  proxy = await startProxy(provider);
  client = new OpenAI({ baseURL: proxy.baseURL, apiKey: "unused", maxRetries: 0, timeout: PATIENCE });
}, limit);

after(async () => {
  await proxy?.stop();
  await provider?.stop();
}, limit);

// The weather tool, and the cities it was called with.
function weather() {
  const answered = [];
  const answer = ({ city }) => {
    answered.push(city);
    return `Fair in ${city}.`;
  };
  const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
  const described = { name: "weather", description: "The weather of a city", parameters };
  const tool = { type: "function", function: { ...described, function: answer, parse: JSON.parse } };
  return { answered, tool, schema: { type: "function", function: described }, answer };
}

function check(tag, how, answered) {
  const seen = provider.of(tag).map((one) => one.body);
  assert.deepEqual(answered, CITIES);
  assert.deepEqual(names(seen[0]), ["weather"]);
  assert.deepEqual(new Set(names(seen.at(-1))), new Set(["weather", ...OWN]));
  if (how === "before" || how === "after") assert.equal(seen.length, LOOP);
  else assert.ok(seen.length > LOOP, `${seen.length} requests`);
  for (const { messages } of seen) {
    let open = [];
    for (const one of messages) {
      if (one.role === "tool") {
        assert.ok(open.includes(one.tool_call_id));
        open = open.filter((id) => id !== one.tool_call_id);
        continue;
      }
      assert.deepEqual(open, [], "a call without its answer");
      open = (one.tool_calls ?? []).map((call) => call.id);
    }
    assert.deepEqual(open, []);
  }
  assert.ok(JSON.stringify(seen.at(-1)).includes("go on after request"));
}

const request = (how, tag, tools) => ({
  model: `scripted/recovery-${how}`,
  messages: [...TASK],
  tools,
  user: tag,
});

for (const how of RECOVERY) {
  for (const stream of [false, true]) {
    test(`runTools, ${how}, ${stream ? "streamed" : "whole"}`, limit, async () => {
      const tag = randomUUID();
      const { answered, tool } = weather();
      const options = { maxChatCompletions: LOOP };
      const runner = client.chat.completions.runTools({ ...request(how, tag, [tool]), stream }, options);
      const called = [];
      runner.on("functionToolCall", (call) => called.push(call.name));
      assert.equal(await runner.finalContent(), TEXT);
      assert.deepEqual(called, CITIES.map(() => "weather"));
      check(tag, how, answered);
    });
  }

  test(`the stream helper in a loop, ${how}`, limit, async () => {
    const tag = randomUUID();
    const { answered, schema, answer } = weather();
    const asked = request(how, tag, [schema]);
    let message;
    for (let step = 0; step < LOOP; step += 1) {
      const done = await client.chat.completions.stream(asked).finalChatCompletion();
      message = done.choices[0].message;
      asked.messages.push(message);
      if (!message.tool_calls?.length) break;
      assert.equal(done.choices[0].finish_reason, "tool_calls");
      for (const call of message.tool_calls) {
        assert.equal(call.function.name, "weather");
        const content = answer(JSON.parse(call.function.arguments));
        asked.messages.push({ role: "tool", tool_call_id: call.id, content });
      }
    }
    assert.equal(message.content, TEXT);
    check(tag, how, answered);
  });
}
