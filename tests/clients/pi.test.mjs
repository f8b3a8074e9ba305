// The coding agent pi without a terminal, with two providers behind one proxy: it reads files that
// together exceed the window, edits one, and runs a command that shows the edit.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { after, before, test } from "node:test";

import { PLACES, Task } from "./contract.mjs";
import { PATIENCE, installed, startTwo } from "./harness.mjs";

const limit = { timeout: 2 * PATIENCE };
const FILES = 10;
let two;

before(async () => (two = await startTwo()), limit);
after(() => two?.stop(), limit);

// pi's model settings: a provider for each place, with a window that pi's own compaction never
// reaches.
function models() {
  const model = { contextWindow: 1_000_000, maxTokens: 512 };
  const provider = ({ path, key, model: id }) => ({
    baseUrl: two.url + path,
    apiKey: key,
    api: "openai-completions",
    models: [{ ...model, id }],
  });
  const named = PLACES.map((place, at) => [`place-${at}`, provider(place)]);
  const wrong = { ...provider(PLACES[0]), apiKey: "wrong" };
  return { providers: { ...Object.fromEntries(named), wrong } };
}

// A folder with files, and pi's own folder beside it.
async function folder() {
  const home = await mkdtemp(join(tmpdir(), "plimsoll-pi-"));
  const [work, agent] = [join(home, "work"), join(home, "agent")];
  await mkdir(work);
  await mkdir(agent);
  await writeFile(join(agent, "models.json"), JSON.stringify(models()));
  for (let number = 0; number < FILES; number += 1) {
    const line = (at) => `file ${number}, line ${at}: wind and rain, a rising tide\n`;
    await writeFile(join(work, `${number}.txt`), Array.from({ length: 100 }, (_, at) => line(at)).join(""));
  }
  return { home, work, agent };
}

// Runs pi to its end; returns its exit code, its output, and the events of its session.
async function pi({ home, work, agent }, model, prompt) {
  const script = join(installed, "@earendil-works", "pi-coding-agent", "dist", "cli.js");
  const flags = ["--mode", "json", "--print", "--no-session", "--model", model, "--tools", "read,edit,bash"];
  const environment = { PATH: process.env.PATH, HOME: home, PI_CODING_AGENT_DIR: agent, PI_OFFLINE: "1", PI_TELEMETRY: "0" };
  const child = spawn(process.execPath, [script, ...flags, prompt], {
    cwd: work,
    env: environment,
    stdio: ["ignore", "pipe", "pipe"],
    timeout: PATIENCE,
  });
  const [output, errors, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, "exit")]);
  const events = output.split("\n").filter(Boolean).map((line) => JSON.parse(line));
  return { code, errors, events };
}

for (const [at, { path, model, provider }] of PLACES.entries()) {
  test(`pi finishes its work: ${path} ${model}`, limit, async (context) => {
    const place = await folder();
    context.after(() => rm(place.home, { recursive: true, force: true }));
    const reads = Array.from({ length: FILES }, (_, number) => [["read", { path: `${number}.txt` }]]);
    const edits = [{ oldText: "file 3, line 50: wind and rain", newText: "file 3, line 50: sun" }];
    const task = new Task([
      ...reads,
      [["edit", { path: "3.txt", edits }]],
      [["bash", { command: "grep -c sun 3.txt > found && cat found" }]],
    ]);
    const { code, errors, events } = await pi(place, `place-${at}/${model}`, task.text);
    assert.equal(code, 0, errors);
    assert.ok((await readFile(join(place.work, "3.txt"), "utf8")).includes("file 3, line 50: sun, a rising tide"));
    assert.equal(await readFile(join(place.work, "found"), "utf8"), "1\n");
    const tools = events.filter((one) => one.type === "tool_execution_end");
    assert.deepEqual(tools.map((one) => one.toolName), [...reads.map(() => "read"), "edit", "bash"]);
    assert.deepEqual(tools.filter((one) => one.isError), []);
    const said = events.findLast((one) => one.type === "message_end" && one.message.role === "assistant");
    const words = said.message.content.map((part) => part.text ?? "").join("");
    const sent = await task.checkSeen(two, provider, words, true);
    // Every file has the same length, so a read that adds next to nothing was paid for by a cut. Most cuts leave room for
    // the next read.
    const added = sent.slice(1, FILES).map((count, at) => count - sent[at]);
    const cuts = added.filter((count) => count < Math.max(...added) / 4).length;
    assert.ok(cuts > 0 && cuts <= added.length / 2, String(sent));
  });
}

test("pi shows the errors of a provider", limit, async (context) => {
  const place = await folder();
  context.after(() => rm(place.home, { recursive: true, force: true }));
  const { events } = await pi(place, `wrong/${PLACES[0].model}`, "hi");
  const said = events.findLast((one) => one.type === "message_end" && one.message.role === "assistant");
  assert.equal(said.message.stopReason, "error");
  assert.match(said.message.errorMessage, /401.*Incorrect API key/);
});
