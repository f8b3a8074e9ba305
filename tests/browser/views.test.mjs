// Accessibility: every view in both languages and both themes, checked by axe-core and on a phone.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { axe, keyed, launch, limit, open, reads, rowOf, start } from "./harness.mjs";

let proxy, empty, fresh, guarded, local, browser;
const talks = {};
// With hidden values, and sources of settings.
const LOCAL = `
[admin]
local = true

[providers.far]
base_url = "http://127.0.0.1:1/v1"
query = "key=oh-no"
auth = "none"
headers = { "x-team" = "oh-no" }
`;
const expected = /Failed to load resource/;

before(async () => {
  [proxy, empty, fresh, guarded, local, browser] = await Promise.all([
    start(),
    start(),
    start(),
    start(keyed(false)),
    start(LOCAL),
    launch(),
  ]);
  talks.other = local.talk("harbour/deep", "sk-of-an-sdk");
  await talks.other.say("On", 6_000);
  await empty.talk("harbour/deep", "sk-of-an-sdk").say("On", 6_000);
  for (const [name, model, tokens] of [
    ["deep", "harbour/deep", [1_000, 6_000, 9_000, 9_100]],
    ["dark", "harbour/nobody-knows", [700]],
    ["calm", "harbour/deep", [2_000]],
  ]) {
    talks[name] = proxy.talk(model);
    for (const count of tokens) await talks[name].say("On", count, count / 2);
  }
}, limit);

after(async () => {
  await browser?.close();
  for (const one of [proxy, empty, fresh, guarded, local]) await one?.stop();
}, limit);

// Each view, and the elements to wait for before the check.
const VIEWS = {
  list: { there: (page) => rowOf(page, talks.deep.id).waitFor() },
  "a session": {
    hash: () => `#/sessions/${talks.deep.id}`,
    there: async (page) => {
      await page.locator(".picture svg").waitFor();
      for (const one of await page.locator("summary").all()) await one.click();
      await page.getByRole("slider").focus();
    },
  },
  "a session of an unknown window": {
    hash: () => `#/sessions/${talks.dark.id}`,
    there: (page) => page.locator(".hint").waitFor(),
  },
  "a session that is not there": {
    hash: () => "#/sessions/none",
    there: (page) => page.locator("main .problem").waitFor(),
  },
  "the question before a clear": {
    hash: () => `#/sessions/${talks.deep.id}`,
    there: async (page) => {
      await page.locator(".actions .button").nth(1).click();
      await page.locator("dialog").waitFor();
    },
  },
  providers: {
    hash: () => "#/providers",
    there: (page) => page.locator(".providers table").first().waitFor(),
  },
  "no session of this key": { of: () => empty, there: (page) => page.locator(".others").waitFor() },
  "a session of another key": {
    of: () => local,
    hash: () => `#/sessions/${talks.other.id}`,
    there: (page) => page.locator(".picture svg").waitFor(),
  },
  settings: {
    of: () => local,
    hash: () => "#/settings",
    there: (page) => page.locator(".in-force table").first().waitFor(),
  },
  "settings that this client may not see": {
    of: () => empty,
    hash: () => "#/settings",
    there: (page) => page.locator("main .problem").waitFor(),
  },
  "no sessions": { of: () => fresh, there: (page) => page.locator(".empty").waitFor() },
  "the question for a key": { of: () => guarded, there: (page) => page.locator("dialog").waitFor() },
};

const WORDS = { "en-GB": ["Sessions", "en"], "zh-CN": ["会话", "zh-Hans"] };

for (const [locale, [words, lang]] of Object.entries(WORDS)) {
  for (const [name, { of = () => proxy, hash = () => "", there }] of Object.entries(VIEWS)) {
    test(`no accessibility violation, ${locale}: ${name}`, limit, async () => {
      const { page, ok } = await open(browser, of(), {
        hash: hash(),
        locale,
        expected,
        reducedMotion: "reduce",
      });
      await there(page);
      assert.equal(await page.locator("html").getAttribute("lang"), lang);
      await reads(page.locator("nav a").first(), words);
      await page.evaluate(axe());
      for (const colorScheme of ["light", "dark"]) {
        await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
        const { violations, passes } = await page.evaluate(() =>
          window.axe.run(document, { resultTypes: ["violations"] }),
        );
        const told = (one) =>
          `${one.id}: ${one.nodes.map((node) => `${node.html} ${node.failureSummary}`).join("\n")}`;
        assert.deepEqual(violations.map(told), [], colorScheme);
        assert.ok(passes.length > 10, colorScheme);
      }
      await page.setViewportSize({ width: 360, height: 740 });
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 360);
      await ok();
    });
  }
}

test("language and colours are switched at once, and kept", limit, async () => {
  const { page, ok } = await open(browser, proxy, { colorScheme: "light" });
  await rowOf(page, talks.deep.id).waitFor();
  const paper = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const light = await paper();
  await page.getByRole("button", { name: "中文" }).click();
  await reads(rowOf(page, talks.deep.id), "告急");
  await reads(rowOf(page, talks.calm.id), "充裕");
  await reads(rowOf(page, talks.dark.id), "未知");
  assert.equal(await page.title(), "会话 · Plimsoll");
  await page.getByRole("button", { name: "配色：跟随系统" }).click();
  await page.getByRole("button", { name: "配色：浅色" }).click();
  await page.getByRole("button", { name: "配色：深色" }).waitFor();
  const dark = await paper();
  assert.notEqual(dark, light);
  await page.reload();
  await reads(rowOf(page, talks.deep.id), "告急");
  assert.equal(await paper(), dark);
  await page.emulateMedia({ colorScheme: "light" });
  assert.equal(await paper(), dark);
  await page.getByRole("button", { name: "配色：深色" }).click();
  assert.equal(await paper(), light);
  await page.getByRole("button", { name: "English" }).click();
  await reads(rowOf(page, talks.deep.id), "Critical");
  await ok();
});

test("nothing moves with reduced motion", limit, async () => {
  const { page, ok } = await open(browser, proxy, { reducedMotion: "reduce" });
  await rowOf(page, talks.deep.id).waitFor();
  const moves = await page.evaluate(() =>
    [...document.querySelectorAll("*")].some((it) => parseFloat(getComputedStyle(it).transitionDuration) > 0),
  );
  assert.equal(moves, false);
  await ok();
});

test("settings are shown with their source, and without secrets", limit, async () => {
  const { page, ok } = await open(browser, local);
  await page.getByRole("link", { name: "Settings" }).click();
  const row = (key) => page.getByRole("row", { name: key });
  await reads(row("admin.local"), "file");
  await reads(row("admin.local"), "yes");
  await reads(row("server.listen"), "flag: --listen");
  await reads(row("server.max_connections"), "4,096");
  await reads(row("server.max_connections"), "default");
  await reads(row("providers.far.headers.x-team"), "hidden");
  await reads(row("providers.far.query"), "hidden");
  await reads(row("providers.far.base_url"), "http://127.0.0.1:1/v1");
  assert.ok(!(await page.locator("body").innerText()).includes("oh-no"));
  await ok();
  const other = await open(browser, proxy);
  await rowOf(other.page, talks.deep.id).waitFor();
  assert.equal(await other.page.getByRole("link", { name: "Settings" }).isVisible(), false);
  await other.ok();
});
