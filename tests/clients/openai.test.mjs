// The openai SDK for Node against the running proxy: nothing but the base URL is changed.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, test } from "node:test";

import { PATIENCE, Scripted, TEXT, USAGE, sdk, startProxy, waitUntil } from "./harness.mjs";

const MODEL = "simulated/plimsoll-8k";
const openai = await sdk();
const OpenAI = openai.default;
const limit = { timeout: 2 * PATIENCE };

const WEATHER = {
  type: "function",
  function: {
    name: "weather",
    description: "The weather of a city",
    parameters: {
      type: "object",
      properties: { city: { type: "string" } },
      required: ["city"],
      additionalProperties: false,
    },
  },
};

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

const user = (content) => ({ role: "user", content });
const create = (request, options) => client.chat.completions.create(request, options);

async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

const textOf = (chunks) => chunks.map((chunk) => chunk.choices[0].delta.content ?? "").join("");

// Completion and stream

test("a completion", limit, async () => {
  const done = await create({ model: MODEL, messages: [user("Where is the harbour?")] });
  assert.equal(done.choices[0].finish_reason, "stop");
  assert.ok(done.choices[0].message.content.length > 20);
  assert.equal(done.usage.total_tokens, done.usage.prompt_tokens + done.usage.completion_tokens);
});

test("completion of a scripted provider", limit, async () => {
  const tag = randomUUID();
  const done = await create({ model: "scripted/text", messages: [user("hi")], user: tag });
  assert.equal(done.choices[0].message.content, TEXT);
  assert.deepEqual(done.usage, USAGE);
  const seen = provider.last(tag);
  assert.equal(seen.body.model, "text");
  assert.deepEqual(seen.body.messages, [user("hi")]);
  assert.equal(seen.headers.authorization, undefined);
  assert.ok(!Object.keys(seen.headers).some((name) => name.startsWith("x-plimsoll")));
});

for (const model of [MODEL, "scripted/text"]) {
  test(`stream of ${model}: the same text, no chunk without choices`, limit, async () => {
    const request = { model, messages: [user("Tell me of the sea")] };
    const whole = await create(request);
    const chunks = await collect(await create({ ...request, stream: true }));
    assert.ok(chunks.every((chunk) => chunk.choices.length > 0));
    assert.equal(textOf(chunks), whole.choices[0].message.content);
    assert.equal(chunks.at(-1).choices[0].finish_reason, "stop");
  });

  test(`stream of ${model} with usage asked for`, limit, async () => {
    const request = { model, messages: [user("Tell me of the sea")] };
    const whole = await create(request);
    const options = { stream: true, stream_options: { include_usage: true } };
    const chunks = await collect(await create({ ...request, ...options }));
    const last = chunks.pop();
    assert.deepEqual(last.choices, []);
    assert.equal(last.usage.prompt_tokens, whole.usage.prompt_tokens);
    assert.ok(chunks.every((chunk) => chunk.choices.length > 0));
    assert.equal(textOf(chunks), whole.choices[0].message.content);
  });
}

test("the provider is asked for usage unless the client refuses", limit, async () => {
  const tag = randomUUID();
  const request = { model: "scripted/text", messages: [user("hi")], stream: true, user: tag };
  await collect(await create(request));
  assert.equal(provider.last(tag).body.stream_options.include_usage, true);
  await collect(await create({ ...request, stream_options: { include_usage: false } }));
  assert.equal(provider.last(tag).body.stream_options.include_usage, false);
});

test("the stream helper of the SDK", limit, async () => {
  const stream = client.chat.completions.stream({ model: MODEL, messages: [user("Tell me of the sea")] });
  let said = "";
  stream.on("content", (delta) => (said += delta));
  const done = await stream.finalChatCompletion();
  assert.equal(said, done.choices[0].message.content);
});

test("many requests at once", limit, async () => {
  const ask = async (number) =>
    textOf(await collect(await create({ model: MODEL, messages: [user(`Question ${number}`)], stream: true })));
  const said = await Promise.all(Array.from({ length: 16 }, (_, number) => ask(number)));
  assert.ok(said.every((text) => text.length > 0));
});

test("models are listed", limit, async () => {
  const names = (await collect(await client.models.list())).map((model) => model.id);
  assert.ok(names.includes("scripted/recovery-after"), names.join(", "));
  // Simulated models are listed only where no provider is configured.
  assert.ok(!names.includes(MODEL), names.join(", "));
});

// Tools

test("tool round trip", limit, async () => {
  const tag = randomUUID();
  const messages = [user("How is the weather in Bergen and in Porto?")];
  const request = { model: "scripted/tools", tools: [WEATHER], user: tag };
  const asked = (await create({ ...request, messages })).choices[0];
  assert.equal(asked.finish_reason, "tool_calls");
  const calls = asked.message.tool_calls;
  assert.deepEqual(calls.map((call) => JSON.parse(call.function.arguments).city), ["Bergen", "Porto"]);
  messages.push(asked.message);
  for (const call of calls) messages.push({ role: "tool", tool_call_id: call.id, content: `${call.id}: rain` });
  const answer = (await create({ ...request, messages })).choices[0];
  assert.equal(answer.message.content, "It says: call_b: rain");
  const roles = provider.last(tag).body.messages.map((message) => message.role);
  assert.deepEqual(roles, ["user", "assistant", "tool", "tool"]);
});

test("the SDK's own tool runner", limit, async () => {
  const cities = [];
  const look = {
    name: "weather",
    description: "The weather of a city",
    parameters: WEATHER.function.parameters,
    parse: JSON.parse,
    function: ({ city }) => {
      cities.push(city);
      return `rain in ${city}`;
    },
  };
  const runner = client.chat.completions.runTools({
    model: "scripted/tools",
    stream: true,
    messages: [user("Weather?")],
    tools: [{ type: "function", function: look }],
  });
  assert.equal(await runner.finalContent(), "It says: rain in Porto");
  assert.deepEqual(cities, ["Bergen", "Porto"]);
});

test("an agent loop comes to its end", limit, async () => {
  const messages = [{ role: "system", content: "You are a forecaster." }, user("Compare four cities.")];
  for (let round = 0; round < 20; round += 1) {
    const { message } = (await create({ model: MODEL, messages, tools: [WEATHER] })).choices[0];
    if (!message.tool_calls) {
      assert.ok(message.content);
      return;
    }
    messages.push(message);
    for (const call of message.tool_calls) {
      assert.ok("city" in JSON.parse(call.function.arguments));
      messages.push({ role: "tool", tool_call_id: call.id, content: "12 degrees" });
    }
  }
  assert.fail("the simulated model never stopped calling tools");
});

// Images and structured output

test("images reach the provider unchanged", limit, async () => {
  const tag = randomUUID();
  const data =
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
  const content = [
    { type: "text", text: "What is this?" },
    { type: "image_url", image_url: { url: data } },
    { type: "image_url", image_url: { url: "https://example.org/a.png?b=c&d", detail: "low" } },
  ];
  const messages = [user(content)];
  await create({ model: "scripted/text", messages, user: tag });
  assert.deepEqual(provider.last(tag).body.messages, messages);
  const done = await create({ model: MODEL, messages });
  assert.ok(done.choices[0].message.content);
});

test("structured output", limit, async () => {
  const tag = randomUUID();
  const schema = {
    type: "object",
    properties: { name: { type: "string" }, depth: { type: "number" }, berths: { type: "array", items: { type: "integer" } } },
    required: ["name", "depth", "berths"],
    additionalProperties: false,
  };
  const request = {
    messages: [user("Describe a harbour")],
    response_format: { type: "json_schema", json_schema: { name: "harbour", strict: true, schema } },
  };
  const done = await create({ model: "scripted/harbour", ...request });
  const harbour = JSON.parse(done.choices[0].message.content);
  assert.equal(typeof harbour.name, "string");
  assert.equal(typeof harbour.depth, "number");
  assert.ok(harbour.berths.every(Number.isInteger));
  await create({ model: "scripted/text", user: tag, ...request });
  assert.deepEqual(provider.last(tag).body.response_format, request.response_format);
});

// Headers

test("headers of a completion", limit, async () => {
  const asked = create({ model: MODEL, messages: [user("Ahoy")] });
  const { data, response } = await asked.withResponse();
  const header = (name) => response.headers.get(name);
  const used = data.usage.prompt_tokens;
  assert.ok(header("x-plimsoll-session"));
  assert.equal(header("x-plimsoll-health"), "healthy");
  assert.equal(header("x-plimsoll-health-from"), "response");
  assert.equal(header("x-plimsoll-prompt-tokens"), String(used));
  assert.equal(header("x-plimsoll-context-limit"), "8192");
  assert.equal(header("x-plimsoll-hard-util"), (used / 8192).toFixed(3));
  assert.equal(header("x-plimsoll-actions"), "none");
  assert.equal(header("x-plimsoll-provider"), "simulated");
  assert.equal(header("x-plimsoll-attempts"), "1");
  assert.match(header("server-timing"), /guard;dur=/);
});

test("a continued conversation keeps its session, streamed too", limit, async () => {
  const ask = async (messages) => {
    const { data, response } = await create({ model: MODEL, messages, stream: true }).withResponse();
    return { said: textOf(await collect(data)), headers: response.headers };
  };
  const messages = [user(`Session ${randomUUID()}`)];
  const first = await ask(messages);
  assert.equal(first.headers.get("x-plimsoll-health"), "unknown");
  messages.push({ role: "assistant", content: first.said }, user("And then?"));
  const second = await ask(messages);
  const other = await ask([user(`Session ${randomUUID()}`)]);
  assert.equal(second.headers.get("x-plimsoll-session"), first.headers.get("x-plimsoll-session"));
  assert.notEqual(other.headers.get("x-plimsoll-session"), first.headers.get("x-plimsoll-session"));
  assert.equal(second.headers.get("x-plimsoll-health-from"), "previous");
  assert.equal(second.headers.get("x-plimsoll-health"), "healthy");
});

test("provider headers pass", limit, async () => {
  const { response } = await create({ model: "scripted/text", messages: [user("hi")] }).withResponse();
  assert.equal(response.headers.get("x-scripted"), "yes");
  assert.equal(response.headers.get("x-plimsoll-provider"), "scripted");
  assert.equal(response.headers.get("x-plimsoll-prompt-tokens"), "321");
  assert.equal(response.headers.get("x-plimsoll-context-limit"), "unknown");
});

// Errors

const ERRORS = {
  400: openai.BadRequestError,
  401: openai.AuthenticationError,
  404: openai.NotFoundError,
  429: openai.RateLimitError,
  500: openai.InternalServerError,
};

for (const [status, kind] of Object.entries(ERRORS)) {
  for (const stream of [false, true]) {
    test(`a ${status} of the provider passes unchanged, stream: ${stream}`, limit, async () => {
      const tag = randomUUID();
      const request = { model: `scripted/status-${status}`, messages: [user("hi")], stream, user: tag };
      await assert.rejects(create(request), (error) => {
        assert.ok(error instanceof kind, String(error));
        assert.equal(error.status, Number(status));
        assert.equal(error.code, `code_${status}`);
        assert.equal(error.error.message, `scripted ${status}`);
        if (status === "429") assert.equal(error.headers.get("retry-after"), "7");
        return true;
      });
      assert.equal(provider.of(tag).length, 1, "the proxy does not retry by itself");
    });
  }
}

test("the SDK retries through the proxy", limit, async () => {
  const tag = randomUUID();
  const done = await create({ model: "scripted/flaky", messages: [user("hi")], user: tag }, { maxRetries: 2 });
  assert.equal(done.choices[0].message.content, TEXT);
  assert.equal(provider.of(tag).length, 2);
});

test("unknown models are a 404", limit, async () => {
  for (const model of ["nobody/nothing", "simulated/nothing", "nothing-at-all"]) {
    await assert.rejects(create({ model, messages: [user("hi")] }), (error) => {
      assert.ok(error instanceof openai.NotFoundError, String(error));
      assert.equal(error.code, "model_not_found");
      return true;
    });
  }
});

test("an overflow that cannot be fitted is context_length_exceeded", limit, async () => {
  for (const headers of [{}, { "x-plimsoll-guard": "off" }]) {
    const request = { model: MODEL, messages: [user("tide ".repeat(20_000))] };
    await assert.rejects(create(request, { headers }), (error) => {
      assert.ok(error instanceof openai.BadRequestError, String(error));
      assert.equal(error.code, "context_length_exceeded");
      assert.match(error.message, /This model's maximum context length is 8192 tokens/);
      return true;
    });
  }
});

// Clients that disconnect

test("a timeout closes the provider's request", limit, async () => {
  const tag = randomUUID();
  const request = { model: "scripted/hang", messages: [user("hi")], user: tag };
  await assert.rejects(create(request, { timeout: 500 }), openai.APIConnectionTimeoutError);
  await waitUntil(() => provider.closed.has(tag), "the provider sees its client leave");
});

test("an aborted stream is closed at the provider", limit, async () => {
  const tag = randomUUID();
  const request = { model: "scripted/drip", messages: [user("hi")], stream: true, user: tag };
  const stream = await create(request);
  for await (const chunk of stream) {
    if (chunk.choices[0].delta.content === "first") break;
  }
  stream.controller.abort();
  await waitUntil(() => provider.closed.has(tag), "the provider sees its client leave");
});

// A provider that always compresses

for (const stream of [false, true]) {
  test(`an unasked compressed answer is readable, stream: ${stream}`, limit, async () => {
    const tag = randomUUID();
    const request = { model: "scripted/gzip", messages: [user("hi")], stream, user: tag };
    const { data, response } = await create(request).withResponse();
    assert.equal(provider.last(tag).headers["accept-encoding"], "identity");
    if (stream) {
      const chunks = await collect(data);
      assert.ok(chunks.every((chunk) => chunk.choices.length > 0));
      assert.equal(textOf(chunks), TEXT);
    } else {
      assert.equal(data.choices[0].message.content, TEXT);
      assert.equal(response.headers.get("x-plimsoll-prompt-tokens"), "321");
    }
  });
}

// The guard

// Every call has its result, and every result its call, by position.
function assertValid(messages) {
  let waiting = [];
  for (const message of messages) {
    if (message.role === "tool") {
      const at = waiting.indexOf(message.tool_call_id);
      assert.ok(at >= 0, `no call for ${message.tool_call_id}`);
      waiting.splice(at, 1);
    } else {
      assert.deepEqual(waiting, [], "unanswered calls");
      waiting = (message.tool_calls ?? []).map((call) => call.id);
    }
  }
  assert.deepEqual(waiting, [], "unanswered calls");
}

// An agent's history: repeated calls and results, with reused ids.
function rounds(count, size) {
  return Array.from({ length: count }, (_, number) => {
    const id = `call_${number % 7}`;
    const call = { name: "weather", arguments: JSON.stringify({ city: `city ${number}` }) };
    return [
      { role: "assistant", content: null, tool_calls: [{ id, type: "function", function: call }] },
      { role: "tool", tool_call_id: id, content: `result ${number}: ${"wind and rain, ".repeat(size)}` },
    ];
  }).flat();
}

test("a big tool result is truncated", limit, async () => {
  const tag = randomUUID();
  const lines = Array.from({ length: 8_000 }, (_, number) => `line ${number} of the log\n`);
  const messages = [user("Read the log"), ...rounds(1, 4)];
  messages.at(-1).content = `HEAD ${lines.join("")}TAIL`;
  const request = { model: "scripted/text", messages, tools: [WEATHER], user: tag };
  const { response } = await create(request).withResponse();
  const sent = provider.last(tag).body.messages;
  assert.deepEqual(sent.slice(0, -1), messages.slice(0, -1));
  const result = sent.at(-1).content;
  assert.ok(result.length > 1_000 && result.length <= 50_000, String(result.length));
  assert.ok(result.startsWith("HEAD ") && result.endsWith("TAIL"));
  assert.match(result, /characters truncated; recall id m\d+\]/);
  assert.equal(response.headers.get("x-plimsoll-actions"), "truncated=1");
});

test("a long history is folded and valid", limit, async () => {
  const tag = randomUUID();
  const system = { role: "system", content: "You are a forecaster." };
  const task = user("Compare all cities.");
  const messages = [system, task, ...rounds(120, 30)];
  const request = { model: "scripted/window-8k", messages, tools: [WEATHER], user: tag };
  const { response } = await create(request).withResponse();
  const sent = provider.last(tag).body.messages;
  assert.ok(sent.length > 4 && sent.length < messages.length, String(sent.length));
  // User and assistant alternate, so the preface is part of the task.
  assert.deepEqual(sent[0], system);
  assert.equal(sent[1].role, "user");
  assert.ok(sent[1].content.startsWith(`${task.content}\n\n[Note by the context guard`));
  assert.deepEqual(sent.slice(-2), messages.slice(-2));
  assertValid(sent);
  assert.match(response.headers.get("x-plimsoll-actions"), /dropped=/);
});

test("a session outgrows the window of the simulated model", limit, async () => {
  const messages = [user("Compare all cities, one after another.")];
  const history = rounds(110, 60);
  let folded = 0;
  for (let at = 0; at < history.length; at += 2) {
    messages.push(history[at], history[at + 1]);
    const request = { model: MODEL, messages, tools: [WEATHER], max_tokens: 50 };
    const { data, response } = await create(request).withResponse();
    assert.ok(data.usage.prompt_tokens + 50 <= 8_192);
    if (response.headers.get("x-plimsoll-actions").includes("dropped=")) folded += 1;
  }
  assert.ok(folded > 10, String(folded));
});
