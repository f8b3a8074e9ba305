// The JavaScript examples of docs/clients.md, unchanged but for the proxy's address.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { text } from "node:stream/consumers";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { PATIENCE, installed, serve } from "./harness.mjs";

const ADDRESS = "http://127.0.0.1:1876";
// Most of an example's time is the import of a client library on a busy machine.
const EXAMPLE_PATIENCE = 10 * PATIENCE;
const limit = { timeout: 2 * EXAMPLE_PATIENCE };
const here = dirname(fileURLToPath(import.meta.url));
const page = await readFile(join(here, "..", "..", "docs", "clients.md"), "utf8");
let proxy;

before(async () => (proxy = await serve('[server]\ndata_dir = "data"\n')), limit);
after(() => proxy?.stop(), limit);

// The code blocks of a language, each with its section's heading.
function blocks(language) {
  const sections = page.split(/^## /m).slice(1);
  const fence = new RegExp(`\`\`\`${language}\n(.*?)\`\`\``, "gs");
  return sections.flatMap((section) =>
    [...section.matchAll(fence)].map((found) => ({ heading: section.split("\n")[0], code: found[1] })),
  );
}

// Runs Node; returns its exit code and output.
async function node(args, options = {}) {
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "pipe"], timeout: EXAMPLE_PATIENCE, ...options });
  const [output, errors, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, "exit")]);
  return { output, errors, code };
}

const examples = blocks("js");

test("there are examples", () => assert.ok(examples.length >= 2));

for (const { heading, code } of examples) {
  test(heading, limit, async (context) => {
    // Beside the modules, so that they are found.
    const place = await mkdtemp(join(installed, "..", "example-"));
    context.after(() => rm(place, { recursive: true, force: true }));
    const script = join(place, "example.mjs");
    await writeFile(script, code.replaceAll(ADDRESS, proxy.url));
    const done = await node([script]);
    assert.equal(done.code, 0, done.errors);
    assert.match(done.output, /\w/);
  });
}

test("pi", limit, async (context) => {
  const settings = blocks("json").find(({ heading }) => heading === "pi").code.replaceAll(ADDRESS, proxy.url);
  const [, model] = /Start it with `--model ([^`]+)`/.exec(page);
  const home = await mkdtemp(join(tmpdir(), "plimsoll-pi-"));
  context.after(() => rm(home, { recursive: true, force: true }));
  await writeFile(join(home, "models.json"), settings);
  const script = join(installed, "@earendil-works", "pi-coding-agent", "dist", "cli.js");
  const environment = { PATH: process.env.PATH, HOME: home, PI_CODING_AGENT_DIR: home, PI_OFFLINE: "1", PI_TELEMETRY: "0" };
  const flags = ["--print", "--no-session", "--model", model, "Ahoy"];
  const done = await node([script, ...flags], { cwd: home, env: environment });
  assert.equal(done.code, 0, done.errors);
  assert.match(done.output, /\w/);
});
