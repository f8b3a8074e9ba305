// Pages of allowed origins ask models and read answers, streams, errors and headers; others do not, and nothing of the
// proxy's own is open to either.

import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import { after, before, test } from "node:test";

import { KEYS, PATIENCE, keyed, launch, limit, start } from "./harness.mjs";

let open, guarded, browser, pages, port;

before(async () => {
  pages = http.createServer((_, response) =>
    response.writeHead(200, { "content-type": "text/html" }).end("<!doctype html><title>chat"),
  );
  pages.listen(0, "127.0.0.1");
  await once(pages, "listening");
  port = pages.address().port;
  const flags = ["--host-resolver-rules=MAP * 127.0.0.1", "--disable-features=LocalNetworkAccessChecks"];
  [open, guarded, browser] = await Promise.all([
    start("", { server: `allowed_origins = ["http://chat.test:${port}"]` }),
    start(keyed(false), { server: 'allowed_origins = ["*"]' }),
    launch(flags),
  ]);
}, limit);

after(async () => {
  await browser?.close();
  await open?.stop();
  await guarded?.stop();
  pages?.closeAllConnections();
  await new Promise((done) => pages.close(done));
}, limit);

// What a page of `host` reads: [status, header, text], or null where the browser lets it read nothing.
async function read(host, url, { key, ...options } = {}) {
  const context = await browser.newContext();
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  await page.goto(`http://${host}:${port}/`);
  const headers = { "content-type": "application/json" };
  if (key) headers.authorization = `Bearer ${key}`;
  const got = await page.evaluate(
    async ([to, how]) => {
      try {
        const answer = await fetch(to, how);
        return [answer.status, answer.headers.get("x-plimsoll-health"), await answer.text()];
      } catch {
        return null;
      }
    },
    [url, { headers, ...options }],
  );
  await context.close();
  return got;
}

const chat = (model = "harbour/deep", stream = false) => ({
  method: "POST",
  body: JSON.stringify({
    model,
    stream,
    messages: [{ role: "user", content: "Ahoy [tokens 1000 cached 0]" }],
  }),
});

test("a page of an allowed origin reads answers, streams, errors and the proxy's headers", limit, async () => {
  const to = `${open.url}/v1/chat/completions`;
  const [status, health, text] = await read("chat.test", to, chat());
  assert.deepEqual([status, health], [200, "healthy"], text);
  assert.ok(JSON.parse(text).choices[0].message.content);
  const [streamed, , events] = await read("chat.test", to, chat("simulated/plimsoll-8k", true));
  assert.equal(streamed, 200, events);
  assert.match(events, /data: \[DONE\]/);
  const [refused, , why] = await read("chat.test", `${open.url}/v1/v1/models`);
  assert.equal(refused, 404);
  assert.match(why, /did you mean \/v1\/models\?/);
  assert.equal((await read("chat.test", `${open.url}/v1/models`))[0], 200);
});

test("a page of another origin reads nothing", limit, async () => {
  for (const host of ["evil.test", "127.0.0.1", "x.chat.test"])
    for (const options of [chat(), { method: "GET" }])
      assert.equal(await read(host, `${open.url}/v1/${options.body ? "chat/completions" : "models"}`, options), null);
});

test("what the proxy has itself is closed to pages of allowed origins", limit, async () => {
  for (const path of ["/plimsoll/api/about", "/plimsoll/api/sessions", "/metrics", "/healthz"]) {
    assert.equal(await read("chat.test", `${open.url}${path}`), null, path);
    assert.equal(await read("chat.test", `${guarded.url}${path}`, { key: KEYS.alice }), null, path);
  }
});

test("with client keys, the page needs one, and reads that it does", limit, async () => {
  const to = `${guarded.url}/v1/chat/completions`;
  const [status, health] = await read("any.test", to, { key: KEYS.alice, ...chat() });
  assert.deepEqual([status, health], [200, "healthy"]);
  const [refused, , why] = await read("any.test", to, chat());
  assert.equal(refused, 401);
  assert.match(why, /API key/);
  // A browser's own credentials are never allowed.
  assert.equal(await read("any.test", to, { key: KEYS.alice, credentials: "include", ...chat() }), null);
});
