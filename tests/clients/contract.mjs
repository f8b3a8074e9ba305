// What holds for every client with both providers: where to send requests, a task of many steps,
// and checks at the providers.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";

export const WORDS = "Fair winds, and a following sea. 顺风。";
const STEPS = 14;
// Characters of a result; five fill a window.
const RESULT = 5_000;

// Where a client sends its requests. The model's name or the path chooses the provider.
export const PLACES = [
  { path: "/v1", key: "one-key", model: "one/model-a", provider: "one" },
  { path: "/v1", key: "no-key-of-theirs", model: "two/model-b", provider: "two" },
  { path: "/two/v1", key: "no-key-of-theirs", model: "model-b", provider: "two" },
];

// A plan of steps for the model; keeps the numbers it was asked for.
export class Task {
  asked = [];

  constructor(steps) {
    this.name = `task${randomBytes(4).toString("hex")}`;
    this.steps = steps ?? Array.from({ length: STEPS }, (_, number) => [["lookup", { number }]]);
    // Two calls at once.
    if (!steps) this.steps[2].push(["lookup", { number: 100 }]);
  }

  get text() {
    const plan = { task: this.name, steps: this.steps };
    return `Look up every number, please. <plan>${JSON.stringify(plan)}</plan>`;
  }

  lookup(number) {
    this.asked.push(number);
    const line = `entry ${number} of the log of ${this.name}: wind and rain, a rising tide\n`;
    return line.repeat(Math.ceil(RESULT / line.length)).slice(0, RESULT);
  }

  // The loop completed, and exceeded the window on its way without an error.
  async check(two, provider, said, streamed = false) {
    const wanted = this.steps.flat().map(([, { number }]) => number);
    assert.deepEqual(this.asked.toSorted((a, b) => a - b), wanted.toSorted((a, b) => a - b));
    const sent = await this.checkSeen(two, provider, said, streamed);
    // A prompt with fewer tokens than the previous one: the guard cut, unnoticed by the client.
    assert.ok(sent.some((count, at) => at > 0 && count < sent[at - 1]), String(sent));
  }

  // The same for the client's own tools, but for the cut. Returns the tokens of each request.
  async checkSeen(two, provider, said, streamed) {
    assert.ok(said.startsWith(WORDS) && said.includes(`Done after ${this.steps.length} steps`), said);
    const seen = await two.seen(this.name);
    assert.deepEqual(new Set(seen.map((one) => one.provider)), new Set([provider]));
    assert.deepEqual(seen.filter((one) => one.error), []);
    assert.deepEqual(new Set(seen.map((one) => one.stream)), new Set([streamed]));
    assert.ok(seen.length > this.steps.length);
    return seen.map((one) => one.tokens);
  }
}
