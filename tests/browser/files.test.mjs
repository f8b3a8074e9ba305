// The served files of the page, without a browser.

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { KEYS, keyed, limit, start } from "./harness.mjs";

const assets = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "src", "admin", "dashboard", "assets");
let proxy;

before(async () => {
  proxy = await start(keyed(false));
}, limit);

after(() => proxy?.stop(), limit);

const ask = (path, options) => fetch(`${proxy.url}/plimsoll${path}`, { redirect: "manual", ...options });

test("every file is served as in the source, without a key", limit, async () => {
  const names = readdirSync(assets);
  assert.ok(names.length > 20);
  for (const name of names) {
    const answer = await ask(`/${name === "index.html" ? "" : name}`);
    assert.equal(answer.status, 200, name);
    assert.equal(await answer.text(), readFileSync(join(assets, name), "utf8"), name);
    const policy = answer.headers.get("content-security-policy");
    for (const part of [
      "default-src 'none'",
      "script-src 'self'",
      "style-src 'self'",
      "connect-src 'self'",
      "img-src 'self'",
      "base-uri 'none'",
      "form-action 'none'",
      "frame-ancestors 'none'",
      "trusted-types 'none'",
    ]) {
      assert.ok(policy.split("; ").includes(part), `${part} in ${policy}`);
    }
    for (const [header, value] of [
      ["x-content-type-options", "nosniff"],
      ["referrer-policy", "no-referrer"],
      ["cross-origin-opener-policy", "same-origin"],
      ["cross-origin-resource-policy", "same-origin"],
      ["cache-control", "no-cache"],
    ]) {
      assert.equal(answer.headers.get(header), value);
    }
  }
  assert.equal((await ask("/api/sessions")).status, 401);
  const authorization = `Bearer ${KEYS.alice}`;
  assert.equal((await ask("/api/sessions", { headers: { authorization } })).status, 200);
});

test("a cached file is not sent again, and HEAD has no body", limit, async () => {
  const first = await ask("/main.js");
  const etag = first.headers.get("etag");
  const again = await ask("/main.js", { headers: { "if-none-match": etag } });
  assert.equal(again.status, 304);
  assert.equal(again.headers.get("etag"), etag);
  assert.equal(await again.text(), "");
  const head = await ask("/main.js", { method: "HEAD" });
  assert.equal(head.status, 200);
  assert.equal(head.headers.get("etag"), etag);
  assert.equal(Number(head.headers.get("content-length")), (await first.arrayBuffer()).byteLength);
});

test("the page has one address, and other paths are a 404", limit, async () => {
  const moved = await ask("");
  assert.equal(moved.status, 308);
  assert.equal(new URL(moved.headers.get("location"), `${proxy.url}/plimsoll`).pathname, "/plimsoll/");
  assert.equal((await ask("/nothing.js")).status, 404);
  assert.equal((await ask("/../Cargo.toml")).status, 404);
  const posted = await ask("/", { method: "POST" });
  assert.equal(posted.status, 405);
  assert.equal(posted.headers.get("allow"), "GET, HEAD");
});
