// Pages of other origins can neither read nor change anything of the proxy.
//
// SECURITY: three attackers: a page on another local port, a page of another local name, and a page
// whose own name is rebound to this machine after loading (DNS rebinding).

import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import { after, before, test } from "node:test";

import { KEYS, PATIENCE, keyed, launch, limit, start } from "./harness.mjs";

const EVIL = "evil.test";
const HTML = "<!doctype html><title>harmless</title><p>Good day";

let proxy, guarded, browser, attacker, port;
const talks = new Map();

before(async () => {
  attacker = http.createServer((_, response) =>
    response.writeHead(200, { "content-type": "text/html" }).end(HTML),
  );
  attacker.listen(0, "127.0.0.1");
  await once(attacker, "listening");
  port = attacker.address().port;
  // Every name resolves to this machine, as after a rebinding. Newer browsers ask the user before a
  // foreign page reaches local addresses; not all do, so that is switched off.
  const flags = ["--host-resolver-rules=MAP * 127.0.0.1", "--disable-features=LocalNetworkAccessChecks"];
  [proxy, guarded, browser] = await Promise.all([start(), start(keyed(true)), launch(flags)]);
  for (const [one, key] of [
    [proxy, undefined],
    [guarded, KEYS.alice],
  ]) {
    const talk = one.talk("harbour/deep", key);
    await talk.say("The harbour's secret", 6_000);
    talks.set(one, { talk, key });
  }
}, limit);

after(async () => {
  await browser?.close();
  await proxy?.stop();
  await guarded?.stop();
  attacker?.closeAllConnections();
  await new Promise((done) => attacker.close(done));
}, limit);

// Everything that a page can try against `base`, run inside it. Returns what it could read, by the
// way of reading.
async function attack({ base, id, key }) {
  const read = {};
  const within = (work) =>
    Promise.race([work, new Promise((_, fail) => setTimeout(() => fail(new Error("silent")), 10_000))]);
  const attempt = async (name, work) => {
    try {
      const found = await within(work());
      if (found) read[name] = found;
    } catch {
      // Refused by the browser, which is right too.
    }
  };
  const authorization = key ? { authorization: `Bearer ${key}` } : {};
  const told = async (answer) =>
    answer.ok ? `${answer.status} ${(await answer.text()).slice(0, 60)}` : null;
  const paths = [
    "",
    "main.js",
    "api/about",
    "api/sessions",
    `api/sessions/${id}`,
    "api/providers",
    "api/openapi.json",
  ];
  for (const path of paths) {
    await attempt(`fetch ${path}`, async () => told(await fetch(base + path)));
    await attempt(`fetch with a key ${path}`, async () =>
      told(await fetch(base + path, { headers: authorization })),
    );
    await attempt(`fetch no-cors ${path}`, async () => told(await fetch(base + path, { mode: "no-cors" })));
  }
  await attempt("events", async () => {
    const answer = await fetch(`${base}api/events`);
    return answer.ok ? new TextDecoder().decode((await answer.body.getReader().read()).value) : null;
  });
  await attempt(
    "EventSource",
    () =>
      new Promise((done, fail) => {
        const source = new EventSource(`${base}api/events`);
        source.onopen = () => done("opened");
        source.onerror = () => (source.close(), fail(new Error("closed")));
      }),
  );
  await attempt(
    "WebSocket",
    () =>
      new Promise((done, fail) => {
        const socket = new WebSocket(`${base.replace("http", "ws")}api/events`);
        socket.onopen = () => done("opened");
        socket.onerror = () => fail(new Error("closed"));
      }),
  );
  for (const what of ["clear", "compact"]) {
    const to = `${base}api/sessions/${id}/${what}`;
    const plain = { method: "POST", headers: { "content-type": "text/plain" }, body: "{}" };
    await attempt(what, async () => told(await fetch(to, { method: "POST", headers: authorization })));
    await attempt(`${what} no-cors`, async () => told(await fetch(to, { ...plain, mode: "no-cors" })));
    await attempt(`${what} beacon`, async () => (navigator.sendBeacon(to, "{}"), null));
    await attempt(
      `${what} form`,
      () =>
        new Promise((done) => {
          const frame = Object.assign(document.createElement("iframe"), { name: `f-${what}` });
          const form = Object.assign(document.createElement("form"), {
            action: to,
            method: "post",
            target: frame.name,
          });
          document.body.append(frame, form);
          frame.onload = () => done(null);
          form.submit();
        }),
    );
  }
  await attempt("patch", async () => {
    const body = '{"auto_compact":"on"}';
    return told(await fetch(`${base}api/sessions/${id}`, { method: "PATCH", headers: authorization, body }));
  });
  await attempt("script", () => import(`${base}words.js`).then(() => "imported"));
  await attempt(
    "picture",
    () =>
      new Promise((done, fail) => {
        const picture = new Image();
        picture.onload = () => done("shown");
        picture.onerror = () => fail(new Error("refused"));
        picture.src = `${base}mark.svg`;
      }),
  );
  await attempt(
    "style",
    () =>
      new Promise((done, fail) => {
        const style = Object.assign(document.createElement("link"), {
          rel: "stylesheet",
          href: `${base}page.css`,
        });
        style.onload = () => done("styled");
        style.onerror = () => fail(new Error("refused"));
        document.head.append(style);
      }),
  );
  await attempt(
    "frame",
    () =>
      new Promise((done) => {
        const frame = document.createElement("iframe");
        frame.onload = () => {
          const text = frame.contentDocument?.body?.innerText ?? "";
          done(text.startsWith('{"error"') ? null : text);
        };
        frame.src = base;
        document.body.append(frame);
      }),
  );
  return read;
}

const AFTER = { clear_pending: false, compact_pending: false, auto_compact: "follow" };

// Runs the attack on a page of `origin` against `base`. Returns the paths that were answered and
// those that were refused, though the page could read neither.
async function attacked(one, origin, base, prepare) {
  const { talk, key } = talks.get(one);
  const context = await browser.newContext();
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  const answered = new Set();
  const refused = new Set();
  page.on("response", (answer) => {
    if (!answer.url().startsWith(base) || answer.request().method() === "OPTIONS") return;
    (answer.ok() ? answered : refused).add(answer.url().slice(base.length));
  });
  await prepare?.(context);
  await page.goto(origin);
  assert.equal(await page.title(), "harmless");
  const read = await page.evaluate(attack, { base, id: talk.id, key });
  const frames = page.frames().slice(1);
  for (const frame of frames)
    assert.ok(!(await frame.content()).includes("main.js"), "the page shows in a frame");
  await context.close();
  assert.deepEqual(read, {});
  const { clear_pending, compact_pending, auto_compact } = await one.api(`sessions/${talk.id}`, { key });
  assert.deepEqual({ clear_pending, compact_pending, auto_compact }, AFTER);
  return { answered: [...answered], refused: [...refused] };
}

for (const keys of [false, true]) {
  const kind = keys ? "with keys" : "without keys";
  const one = () => (keys ? guarded : proxy);
  const at = (host) => `http://${host}:${new URL(one().url).port}/plimsoll/`;

  test(`a page of another port reads and changes nothing, ${kind}`, limit, async () => {
    const { answered, refused } = await attacked(one(), `http://127.0.0.1:${port}/`, at("127.0.0.1"));
    assert.deepEqual(answered, []);
    assert.ok(refused.includes("api/sessions"), refused.join());
  });

  test(`a page of another name for this machine reads and changes nothing, ${kind}`, limit, async () => {
    const { answered, refused } = await attacked(one(), `http://localhost:${port}/`, at("127.0.0.1"));
    assert.deepEqual(answered, []);
    assert.ok(refused.includes("api/sessions"), refused.join());
  });

  test(`a page of a foreign host reads and changes nothing, ${kind}`, limit, async () => {
    for (const host of [EVIL, "127.0.0.1"]) {
      const { answered, refused } = await attacked(one(), `http://${EVIL}:${port}/`, at(host));
      // A proxy with keys may have any name, and without TLS a browser does not send the page's
      // origin. Then the page's files are sent, which contain nothing; the attacker's page cannot
      // use them.
      const files = keys && host === EVIL ? answered.filter((path) => !path.startsWith("api/")) : [];
      assert.deepEqual(answered, files);
      assert.ok(refused.includes("api/sessions"), refused.join());
    }
  });
}

test("a rebound DNS name gets nothing", limit, async () => {
  const own = `http://${EVIL}:${new URL(proxy.url).port}`;
  // The attacker's page came from the attacker; then its name is rebound to the proxy, with the
  // same port. So it is of the same origin, and the browser allows everything.
  const prepare = (context) =>
    context.route(`${own}/`, (route) => route.fulfill({ contentType: "text/html", body: HTML }));
  const { answered, refused } = await attacked(proxy, `${own}/`, `${own}/plimsoll/`, prepare);
  assert.deepEqual(answered, []);
  assert.ok(refused.includes("api/sessions"), refused.join());
  const context = await browser.newContext();
  const page = await context.newPage();
  const answer = await page.goto(`${own}/plimsoll/`);
  assert.equal(answer.status(), 403);
  assert.equal(answer.headers()["x-plimsoll-error"], "foreign_host");
  assert.ok(!(await page.content()).includes("main.js"));
  await context.close();
});

test("the page itself works in the browser in which the others fail", limit, async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  await page.goto(proxy.page);
  await page.locator(".rows .row").first().waitFor();
  // The attempts above do change something where the page itself makes them.
  const { talk } = talks.get(proxy);
  const to = `${proxy.page}api/sessions/${talk.id}/clear`;
  assert.equal(await page.evaluate(async (url) => (await fetch(url, { method: "POST" })).status, to), 200);
  assert.equal((await proxy.api(`sessions/${talk.id}`)).clear_pending, true);
  await context.close();
});
