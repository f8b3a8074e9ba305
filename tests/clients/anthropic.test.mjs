// The @anthropic-ai/sdk before a provider that speaks Messages.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after, before, describe, test } from "node:test";

import { OWN, PATIENCE, TEXT, sdk, startMessages, waitUntil } from "./harness.mjs";

const anthropic = await sdk("@anthropic-ai/sdk");
const Anthropic = anthropic.default;
const limit = { timeout: 2 * PATIENCE };
const STEPS = 12;
const LOOKUP = {
  name: "lookup",
  description: "Looks a number up",
  input_schema: { type: "object", properties: { number: { type: "integer" } }, required: ["number"] },
};
const THINKING = { type: "enabled", budget_tokens: 1024 };

function newTask(steps = STEPS) {
  const task = `task${randomBytes(4).toString("hex")}`;
  const plan = { task, steps: Array.from({ length: steps }, (_, number) => [["lookup", { number }]]) };
  if (steps > 1) plan.steps[1].push(["lookup", { number: 100 }]);
  const content = `Look up every number. <plan>${JSON.stringify(plan)}</plan>`;
  const body = { model: "plan-16k", max_tokens: 2048, tools: [LOOKUP], messages: [{ role: "user", content }] };
  return { task, steps: plan.steps, body };
}

function ask(client, body, streamed) {
  return streamed ? client.messages.stream(body).finalMessage() : client.messages.create(body);
}

const ways = [
  ["whole", false],
  ["streamed", true],
];

for (const recovery of [true, false]) {
  describe(`recovery ${recovery ? "on" : "off"}`, limit, () => {
    let started, client;

    before(async () => {
      started = await startMessages(recovery);
      client = new Anthropic({ baseURL: started.url, apiKey: "scripted", maxRetries: 0, timeout: PATIENCE });
    }, limit);
    after(() => started?.stop(), limit);

    function check(seen, asked, steps) {
      assert.deepEqual(asked, steps.flat().map(([, { number }]) => number));
      assert.deepEqual(seen.filter((one) => one.error), []);
      const sent = seen.map((one) => one.tokens);
      assert.ok(sent.some((count, at) => at > 0 && count < sent[at - 1]), String(sent));
      assert.equal(seen.some((one) => one.raw.includes("toolu_own")), recovery);
      const own = recovery ? OWN : ["recall"];
      assert.deepEqual(new Set(seen.at(-1).tools), new Set(["lookup", ...own]));
    }

    const result = (number) => `entry ${number} of the log: wind and rain, a rising tide\n`.repeat(100);

    for (const [way, streamed] of ways) {
      for (const thinking of [undefined, THINKING]) {
        test(`a loop of tools, ${way}${thinking ? ", thinking" : ""}`, limit, async () => {
          const { task, steps, body } = newTask();
          const [asked, messages] = [[], [...body.messages]];
          let answer;
          for (let step = 0; step <= steps.length; step += 1) {
            answer = await ask(client, { ...body, messages, thinking }, streamed);
            messages.push({ role: "assistant", content: answer.content });
            const calls = answer.content.filter((one) => one.type === "tool_use");
            assert.equal(answer.stop_reason, calls.length ? "tool_use" : "end_turn");
            if (!calls.length) break;
            asked.push(...calls.map((one) => one.input.number));
            const content = calls.map(({ id, input }) => ({
              type: "tool_result",
              tool_use_id: id,
              content: result(input.number),
            }));
            messages.push({ role: "user", content });
          }
          assert.equal(answer.content.at(-1).text, `${TEXT} Done after ${STEPS} steps.`);
          assert.equal(answer.content[0].type, thinking ? "thinking" : "text");
          assert.ok(!JSON.stringify(messages).includes("toolu_own"));
          check(await started.seen(task), asked, steps);
        });
      }

      const runner = (body, asked, thread) => {
        const run = ({ number }) => {
          asked.push(number);
          return result(number);
        };
        const tools = [{ ...LOOKUP, run, parse: (input) => input }];
        return client.beta.messages.toolRunner({ ...body, tools, thread, stream: streamed });
      };

      test(`the tool runner, ${way}`, limit, async () => {
        const { task, steps, body } = newTask();
        const asked = [];
        const answer = await runner(body, asked, false).runUntilDone();
        assert.equal(answer.content[0].text, `${TEXT} Done after ${STEPS} steps.`);
        check(await started.seen(task), asked, steps);
      });

      // The provider holds the conversation, so nothing is cut and nothing is added.
      test(`the tool runner with a thread, ${way}`, limit, async () => {
        const { task, steps, body } = newTask(4);
        const asked = [];
        const answer = await runner(body, asked).runUntilDone();
        assert.equal(answer.content[0].text, `${TEXT} Done after 4 steps.`);
        assert.deepEqual(asked, steps.flat().map(([, { number }]) => number));
        const seen = await started.seen(task);
        assert.equal(seen.length, 5);
        assert.deepEqual(seen.filter((one) => one.tools.length !== 1), []);
        assert.equal(JSON.parse(seen.at(-1).raw).messages.length, 1);
      });

      for (const [status, error] of [
        [401, "AuthenticationError"],
        [404, "NotFoundError"],
        [429, "RateLimitError"],
        [529, "InternalServerError"],
      ]) {
        test(`the provider's ${status}, ${way}`, limit, async () => {
          const asked = ask(client, { ...newTask(0).body, model: `status-${status}` }, streamed);
          await assert.rejects(asked, (raised) => {
            assert.ok(raised instanceof anthropic[error], raised);
            assert.equal(raised.error.error.message, `scripted ${status}`);
            return true;
          });
        });
      }

      test(`a prompt that cannot fit, ${way}`, limit, async () => {
        const { body } = newTask(0);
        body.messages[0].content += " wind and rain".repeat(20_000);
        await assert.rejects(ask(client, body, streamed), (raised) => {
          assert.ok(raised instanceof anthropic.BadRequestError, raised);
          assert.equal(raised.error.error.type, "invalid_request_error");
          assert.match(raised.error.error.message, /^prompt is too long: \d+ tokens > 16000 maximum$/);
          return true;
        });
      });
    }

    test("an image reaches the provider", limit, async () => {
      const { task, body } = newTask(0);
      const data = Buffer.alloc(2_048, "tide").toString("base64");
      const image = { type: "image", source: { type: "base64", media_type: "image/png", data } };
      const content = [{ type: "text", text: body.messages[0].content }, image];
      await ask(client, { ...body, messages: [{ role: "user", content }] }, false);
      const [seen] = await started.seen(task);
      assert.deepEqual(JSON.parse(seen.raw).messages[0].content, content);
    });

    test("tokens are counted", limit, async () => {
      const { task, body } = newTask(0);
      const { max_tokens: _, ...counted } = body;
      const { input_tokens } = await client.messages.countTokens(counted);
      await ask(client, body, false);
      assert.equal(input_tokens, (await started.seen(task))[0].tokens);
    });

    test("an aborted stream leaves the provider", limit, async () => {
      const { task, body } = newTask(0);
      const stream = client.messages.stream({ ...body, model: "drip" });
      const said = new Promise((done) => stream.once("text", done));
      assert.equal(await said, "first");
      stream.abort();
      await assert.rejects(stream.done(), anthropic.APIUserAbortError);
      await waitUntil(async () => (await started.seen(task))[0].closed, "the provider saw the client leave");
    });
  });
}
