// Helpers of the page's tests: the real binary, a provider with the test's token counts, and
// Debian's Chromium.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import http from "node:http";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { PATIENCE, serve } from "../clients/harness.mjs";
import { Harbour } from "./harbour.mjs";

export { PATIENCE, waitUntil } from "../clients/harness.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const modules = join(here, "..", "..", "target", "clients", "browser");
const require = createRequire(existsSync(modules) ? join(modules, "index.js") : import.meta.url);
const { chromium } = require("playwright-core");
export const axe = () => require("axe-core").source;

// Time limit of a test with a browser, for a slow machine.
export const limit = { timeout: 3 * PATIENCE };

const sha256 = (text) => createHash("sha256").update(text).digest("hex");
export const KEYS = { alice: "key-of-alice", bob: "key-of-bob", admin: "key-of-the-admin" };

// Settings of the clients alice and bob, and of an administrator.
export const keyed = (showContent) => `
[admin]
key_sha256 = "${sha256(KEYS.admin)}"
show_content = ${showContent}

[clients.alice]
key_sha256 = "${sha256(KEYS.alice)}"

[clients.bob]
key_sha256 = "${sha256(KEYS.bob)}"
models = ["harbour/deep"]
`;

// The window of `harbour/deep` with its limits; that of `harbour/nobody-knows` is unknown.
export const WINDOW = 10_000;
export const OPTIMAL = 5_000;
export const CRITICAL = 8_000;

const settings = (harbour, more, server) => `[server]
data_dir = "data"
${server}

[providers.harbour]
base_url = "${harbour.url}"
auth = "none"
profile = "openai"

[guard]
reserve_tokens = 2500

[recovery]
# Chats of the pages, in a small window.
chats = true

[models."harbour/deep"]
context_length = ${WINDOW}
optimal_max_tokens = ${OPTIMAL}
critical_max_tokens = ${CRITICAL}

[models."harbour/silent"]
context_length = ${WINDOW}
${more}`;

// Starts the proxy with its provider; `more` are further settings, `options` those of `serve`, and settings of the section
// `server`.
export async function start(more = "", { server = "", ...options } = {}) {
  const harbour = await new Harbour().start();
  const proxy = await serve(settings(harbour, more, server), {}, options);
  return {
    url: proxy.url,
    page: `${proxy.url}/plimsoll/`,
    printed: proxy.printed,
    harbour,
    api: (path, options) => api(proxy.url, path, options),
    talk: (model, key, agent) => new Talk(proxy.url, model, key, agent),
    async stop() {
      await proxy.stop();
      await harbour.stop();
    },
  };
}

// The parsed answer of the session API.
async function api(url, path, { key, body, ...options } = {}) {
  const headers = key ? { authorization: `Bearer ${key}` } : {};
  const answer = await fetch(`${url}/plimsoll/api/${path}`, {
    ...options,
    headers,
    body: body && JSON.stringify(body),
  });
  const read = await answer.json();
  assert.ok(answer.ok, JSON.stringify(read));
  return read;
}

const agent = new http.Agent({ keepAlive: true, maxSockets: 64 });

// A client's growing conversation with the proxy.
export class Talk {
  messages = [];
  id = null;
  static #nth = 0;

  // `agent` is the client's name for itself.
  constructor(url, model, key, agent) {
    this.agent = agent;
    this.url = url;
    this.model = model;
    this.key = key;
    Talk.#nth += 1;
    this.user = `talk-${Talk.#nth}`;
  }

  // Adds a turn; `tokens` is the provider's count.
  async say(text, tokens, cached = 0, more = {}) {
    const told = tokens === undefined ? "" : ` [tokens ${tokens} cached ${cached}]`;
    this.messages.push({ role: "user", content: `${text} (${this.user})${told}` });
    return this.send(more);
  }

  async send(more = {}) {
    const answer = await post(
      this.url,
      { model: this.model, messages: this.messages, user: this.user, ...more },
      this.key,
      this.agent,
    );
    this.id = answer.headers["x-plimsoll-session"];
    const message = answer.body.choices?.[0].message;
    if (message) this.messages.push(message);
    return { ...answer, message };
  }
}

export function post(url, body, key, userAgent) {
  return new Promise((done, fail) => {
    const data = Buffer.from(JSON.stringify(body));
    const headers = { "content-type": "application/json", "content-length": data.length };
    if (key) headers.authorization = `Bearer ${key}`;
    if (userAgent) headers["user-agent"] = userAgent;
    const request = http.request(
      `${url}/v1/chat/completions`,
      { method: "POST", agent, headers },
      async (response) => {
        const pieces = [];
        for await (const piece of response) pieces.push(piece);
        done({
          status: response.statusCode,
          headers: response.headers,
          body: JSON.parse(Buffer.concat(pieces)),
        });
      },
    );
    request.on("error", fail);
    request.end(data);
  });
}

// A browser that can reach only this machine; `flags` are additional flags.
export async function launch(flags = ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]) {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", ...flags],
  });
}

// Opens the page in its own context. `ok()` fails if the page had an error or sent a request to
// another host. `expected` matches allowed errors in its log.
export async function open(browser, proxy, { hash = "", expected = null, before, ...options } = {}) {
  const context = await browser.newContext({
    locale: "en-GB",
    viewport: { width: 1200, height: 800 },
    ...options,
  });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  const faults = [];
  const asked = [];
  page.on("pageerror", (error) => faults.push(String(error)));
  page.on("console", (line) => {
    if (["error", "warning"].includes(line.type()) && !expected?.test(line.text())) faults.push(line.text());
  });
  context.on("request", (request) => asked.push(request.url()));
  await before?.(page);
  await page.goto(`${proxy.page}${hash}`);
  return {
    page,
    context,
    async ok() {
      assert.deepEqual(faults, []);
      assert.ok(asked.length > 10, `${asked.length} requests`);
      assert.deepEqual(
        asked.filter((url) => !url.startsWith(proxy.page)),
        [],
      );
      await context.close();
    },
  };
}

// A row of the list.
export const rowOf = (page, id) => page.locator(`.rows [data-id="${id}"]`);

// Waits until a locator has this text.
export async function reads(locator, text) {
  await locator.filter({ hasText: text }).first().waitFor({ timeout: PATIENCE });
}

// Waits until the event stream is open and the list complete.
export async function settled(page) {
  await page.locator('.live[data-state="live"]').waitFor();
}
