// Makes the pictures of the documents: `node tests/browser/pictures.mjs` writes docs/pictures/*.png.
//
// The sessions are real, from a running proxy and a provider with given token counts.

import { mkdirSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { serve } from "../clients/harness.mjs";
import { Harbour } from "./harbour.mjs";
import { Talk, launch, open, rowOf, settled } from "./harness.mjs";

const folder = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "docs", "pictures");
// The largest allowed picture.
const MOST_BYTES = 150_000;

// Models and their windows.
const FLEET = [
  ["openai/gpt-4.1", 128_000],
  ["anthropic/claude-sonnet-4-5", 200_000],
  ["local/qwen3-coder", 32_768],
  ["ollama/llama3.1", null],
  // Its provider reports no usage.
  ["ollama/silent-8b", 8_192],
];

// Sessions: the client, the model, the tokens and the task.
const SESSIONS = [
  ["OpenAI/Python 1.99.1", "ollama/llama3.1", 3_380, "Sort these tickets by how urgent they are"],
  ["OpenAI/Python 1.99.1", "ollama/silent-8b", undefined, "A haiku about mast and sail"],
  ["OpenAI/Python 1.99.1", "openai/gpt-4.1", 88_700, "What does the log of the last voyage say?"],
  ["codex_cli_rs/0.46.0", "openai/gpt-4.1", 31_400, "Write the changelog for the next release"],
  ["claude-cli/2.0.31", "anthropic/claude-sonnet-4-5", 117_300, "Keep heights in centimetres, and mend the tests"],
  ["claude-cli/2.0.31", "anthropic/claude-sonnet-4-5", 52_040, "Why does the build take four minutes?"],
  ["opencode/0.9.1", "local/qwen3-coder", 9_150, "Add a dark theme to the settings"],
];

const NOTE = `Next: make the failing test in tests/rigging.rs pass.
Key files: src/rigging.rs (Mast::raise), src/tide.rs.
Run: cargo test rigging -- --nocapture
Easy to lose: heights are in centimetres, and the tide table is in UTC.`;

const TOOL = {
  type: "function",
  function: {
    name: "read_file",
    description: "Reads a file of the project",
    parameters: { type: "object", properties: { path: { type: "string" } }, required: ["path"] },
  },
};

function settings(harbour) {
  const providers = new Set(FLEET.map(([model]) => model.split("/")[0]));
  const provider = (name) =>
    `[providers.${name}]\nbase_url = "${harbour.url}"\nauth = "none"\nprofile = "openai"\n`;
  const model = ([name, window]) => (window ? `[models."${name}"]\ncontext_length = ${window}\n` : "");
  return `[server]\ndata_dir = "data"\n\n${[...providers].map(provider).join("\n")}\n${FLEET.map(model).join("\n")}`;
}

// An agent that reads file after file until its window is full, and beyond.
async function agent(url) {
  const talk = new Talk(url, "local/qwen3-coder", undefined, "opencode/0.9.1");
  talk.messages.push({ role: "system", content: "You are a shipwright who writes Rust. ".repeat(60) });
  talk.messages.push({ role: "user", content: "Make the rigging hold in a storm, and prove it with tests." });
  for (let turn = 0; turn < 84; turn += 1) {
    const { message } = await talk.send({ tools: [TOOL] });
    for (const { id } of message.tool_calls ?? []) {
      const line = `fn raise_${turn}(mast: &mut Mast) -> Height { mast.raise(${turn}) }\n`;
      const long = turn % 19 === 11 ? 1_000 : 24 + ((turn * 37) % 70);
      talk.messages.push({ role: "tool", tool_call_id: id, content: line.repeat(long) });
    }
  }
  return talk;
}

async function picture(browser, proxy, name, options, look) {
  const { page, ok } = await open(browser, proxy, { reducedMotion: "reduce", ...options });
  await settled(page);
  await look(page);
  await page.evaluate(() => document.fonts.ready);
  const path = join(folder, `${name}.png`);
  await page.screenshot({ path });
  await ok();
  const { size } = statSync(path);
  console.log(`${path}: ${size} bytes`);
  if (size > MOST_BYTES) throw new Error(`${path} is larger than ${MOST_BYTES} bytes`);
}

const harbour = await new Harbour().start();
harbour.note = NOTE;
const served = await serve(settings(harbour));
const proxy = { url: served.url, page: `${served.url}/plimsoll/` };
const browser = await launch();
try {
  mkdirSync(folder, { recursive: true });
  for (const [client, model, tokens, task] of SESSIONS) {
    const talk = new Talk(proxy.url, model, undefined, client);
    const told = tokens ? `[tokens ${tokens} cached ${Math.floor(tokens * 0.9)}]` : "";
    // Elements are no part of a title.
    talk.messages.push({ role: "user", content: `<count>${told}</count> ${task}` });
    await talk.send();
  }
  const { id } = await agent(proxy.url);
  const list = (page) => rowOf(page, id).waitFor();
  const session = { hash: `#/sessions/${id}` };
  const chart = (page) => page.locator(".picture svg").waitFor();
  await picture(
    browser,
    proxy,
    "list-light",
    { colorScheme: "light", viewport: { width: 1120, height: 720 } },
    list,
  );
  await picture(
    browser,
    proxy,
    "session-dark",
    { ...session, colorScheme: "dark", viewport: { width: 1120, height: 1000 } },
    chart,
  );
  await picture(
    browser,
    proxy,
    "list-chinese",
    { locale: "zh-CN", colorScheme: "dark", viewport: { width: 1120, height: 560 } },
    list,
  );
  await picture(
    browser,
    proxy,
    "phone",
    { ...session, colorScheme: "light", viewport: { width: 360, height: 720 }, deviceScaleFactor: 1.5 },
    chart,
  );
} finally {
  await browser.close();
  await served.stop();
  await harbour.stop();
}
