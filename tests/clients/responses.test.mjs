// The openai SDK and the Vercel AI SDK in their Responses mode, before a provider that speaks Responses.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after, before, describe, test } from "node:test";

import { OWN, PATIENCE, TEXT, sdk, startResponses } from "./harness.mjs";

const { default: OpenAI } = await sdk("openai");
const { generateText, jsonSchema, stepCountIs, streamText, tool } = await sdk("ai");
const { createOpenAI } = await sdk("@ai-sdk/openai");
globalThis.AI_SDK_LOG_WARNINGS = false;
const limit = { timeout: 2 * PATIENCE };
const STEPS = 12;
const NUMBER = { type: "object", properties: { number: { type: "integer" } }, required: ["number"] };
const LOOKUP = { type: "function", name: "lookup", description: "Looks a number up", parameters: NUMBER, strict: false };
const REASONING = { store: false, reasoning: { effort: "low" }, include: ["reasoning.encrypted_content"] };

const result = (number) => `entry ${number} of the log: wind and rain, a rising tide\n`.repeat(100);

function newTask() {
  const task = `task${randomBytes(4).toString("hex")}`;
  const plan = { task, steps: Array.from({ length: STEPS }, (_, number) => [["lookup", { number }]]) };
  plan.steps[1].push(["lookup", { number: 100 }]);
  return { task, steps: plan.steps, text: `Look up every number. <plan>${JSON.stringify(plan)}</plan>` };
}

async function ask(client, body, streamed) {
  if (!streamed) return client.responses.create(body);
  const stream = client.responses.stream(body);
  const numbers = [];
  for await (const event of stream) numbers.push(event.sequence_number);
  assert.deepEqual(numbers, [...numbers.keys()]);
  return stream.finalResponse();
}

for (const recovery of [true, false]) {
  describe(`recovery ${recovery ? "on" : "off"}`, limit, () => {
    let started, client;

    before(async () => {
      started = await startResponses(recovery);
      client = new OpenAI({ baseURL: `${started.url}/v1`, apiKey: "scripted", maxRetries: 0, timeout: PATIENCE });
    }, limit);
    after(() => started?.stop(), limit);

    async function check({ task, steps }, asked, said) {
      assert.ok(said.endsWith(`${TEXT} Done after ${STEPS} steps.`), said);
      const numbers = steps.flat().map(([, { number }]) => number);
      assert.deepEqual(asked.toSorted(), numbers.toSorted());
      const seen = await started.seen(task);
      assert.deepEqual(seen.filter((one) => one.error), []);
      const sent = seen.map((one) => one.tokens);
      assert.ok(sent.some((count, at) => at > 0 && count < sent[at - 1]), String(sent));
      assert.equal(seen.some((one) => one.raw.includes("call_own")), recovery);
      const own = recovery ? OWN : ["recall"];
      assert.deepEqual(new Set(seen.at(-1).tools), new Set(["lookup", ...own]));
    }

    for (const [way, streamed] of [
      ["whole", false],
      ["streamed", true],
    ]) {
      for (const fields of [{}, REASONING]) {
        test(`a loop of tools, ${way}${fields.reasoning ? ", reasoning" : ""}`, limit, async () => {
          const work = newTask();
          const [asked, input] = [[], [{ role: "user", content: work.text }]];
          let answer;
          for (let step = 0; step <= STEPS; step += 1) {
            answer = await ask(client, { model: "plan-16k", tools: [LOOKUP], input, ...fields }, streamed);
            input.push(...answer.output);
            const calls = answer.output.filter((one) => one.type === "function_call");
            if (!calls.length) break;
            for (const { call_id, arguments: given } of calls) {
              const { number } = JSON.parse(given);
              asked.push(number);
              input.push({ type: "function_call_output", call_id, output: result(number) });
            }
          }
          assert.equal(answer.output[0].type, fields.reasoning ? "reasoning" : "message");
          await check(work, asked, answer.output_text);
        });
      }

      test(`the AI SDK, ${way}`, limit, async () => {
        const work = newTask();
        const asked = [];
        const lookup = tool({
          description: "An entry of the log",
          inputSchema: jsonSchema(NUMBER),
          execute: ({ number }) => {
            asked.push(number);
            return result(number);
          },
        });
        const model = createOpenAI({ baseURL: `${started.url}/v1`, apiKey: "scripted" }).responses("plan-16k");
        // With `store`, it refers to items by their ids alone.
        const providerOptions = { openai: { store: false } };
        const stopWhen = stepCountIs(2 * STEPS);
        const asking = { model, maxRetries: 0, prompt: work.text, tools: { lookup }, stopWhen, providerOptions };
        if (streamed) {
          const running = streamText(asking);
          await running.consumeStream();
          await check(work, asked, await running.text);
        } else {
          const { text } = await generateText(asking);
          await check(work, asked, text);
        }
      });
    }

    test("a prompt that cannot fit", limit, async () => {
      const input = "wind and rain ".repeat(20_000);
      await assert.rejects(client.responses.create({ model: "plan-16k", input }), (error) => {
        assert.equal(error.status, 400);
        assert.equal(error.code, "context_length_exceeded");
        return true;
      });
    });
  });
}
