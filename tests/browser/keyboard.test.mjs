// The page by keyboard alone.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { KEYS, keyed, launch, limit, open, reads, rowOf, start, waitUntil } from "./harness.mjs";

let proxy, guarded, browser;
const talks = {};
const expected = /Failed to load resource/;

before(async () => {
  [proxy, guarded, browser] = await Promise.all([start(), start(keyed(false)), launch()]);
  for (const [name, model, tokens] of [
    ["deep", "harbour/deep", 9_000],
    ["dark", "harbour/nobody-knows", 700],
    ["calm", "harbour/deep", 2_000],
  ]) {
    talks[name] = proxy.talk(model);
    await talks[name].say("On", tokens);
  }
}, limit);

after(async () => {
  await browser?.close();
  await proxy?.stop();
  await guarded?.stop();
}, limit);

// Name or text of the focused element.
const focused = (page) =>
  page.evaluate(() => {
    const element = document.activeElement;
    const named = element.getAttribute("aria-label") ?? element.labels?.[0]?.textContent;
    return (
      named ?? (element.matches("a, button, summary, h1") ? element.textContent.trim() : element.tagName)
    );
  });

// Presses a key until the focused element has this name.
async function until(page, key, name, most = 40) {
  for (let nth = 0; nth < most; nth += 1) {
    if ((await focused(page)).includes(name)) return;
    await page.keyboard.press(key);
  }
  assert.fail(`${name} was not reached with ${key}; at ${await focused(page)}`);
}

test("by keyboard alone: find a session, open it, compact, and go back", limit, async () => {
  const { page, ok } = await open(browser, proxy);
  await rowOf(page, talks.calm.id).waitFor();
  await page.keyboard.press("Tab");
  assert.equal(await focused(page), "Skip to the content");
  // The focused element is visible.
  const seen = await page.evaluate(() => document.activeElement.getBoundingClientRect().top >= 0);
  assert.ok(seen);
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "main");
  await until(page, "Tab", "Search");
  await page.keyboard.type("healthy deep");
  await waitUntil(async () => (await page.locator(".rows .row").count()) === 1, "one is found");
  await until(page, "Tab", `session ${talks.calm.id.slice(0, 8)}`);
  const ring = await page.evaluate(() => getComputedStyle(document.activeElement, "::after").outlineStyle);
  assert.equal(ring, "solid");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: "Session" }).waitFor();
  assert.ok((await focused(page)).startsWith("Session"));
  await reads(page.locator(".load"), "2,000");
  await until(page, "Tab", "Compact");
  await page.keyboard.press("Enter");
  await page.getByText("The next request of this session begins a summary.").waitFor();
  assert.equal((await proxy.api(`sessions/${talks.calm.id}`)).compact_pending, true);
  assert.ok((await focused(page)).includes("Compact"));
  await until(page, "Shift+Tab", "All sessions");
  await page.keyboard.press("Enter");
  await rowOf(page, talks.calm.id).waitFor();
  // Back at the same place, with the same search.
  await waitUntil(
    async () => (await focused(page)).includes(talks.calm.id.slice(0, 8)),
    "the row has the focus",
  );
  assert.equal(await page.getByLabel("Search").inputValue(), "healthy deep");
  await ok();
});

test("the list is walked with the arrow keys, and Tab leaves it", limit, async () => {
  const { page, ok } = await open(browser, proxy);
  await rowOf(page, talks.calm.id).waitFor();
  await page.locator(".rows .name").first().focus();
  const order = await page
    .locator(".rows [data-id]")
    .evaluateAll((rows) => rows.map((row) => row.dataset.id.slice(0, 8)));
  assert.equal(order.length, 3);
  for (const [key, to] of [
    ["ArrowDown", 1],
    ["ArrowDown", 2],
    ["ArrowDown", 2],
    ["Home", 0],
    ["End", 2],
    ["ArrowUp", 1],
    ["PageUp", 0],
  ]) {
    await page.keyboard.press(key);
    assert.ok((await focused(page)).includes(order[to]), `${key}: ${await focused(page)}`);
  }
  // One row is in the tab order, so that Tab leaves a list of thousands.
  assert.equal(await page.locator('.rows .name[tabindex="0"]').count(), 1);
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.closest(".rows")), null);
  await ok();
});

for (const hash of ["", "session", "#/providers"]) {
  test(`Tab leaves every element ${hash}`, limit, async () => {
    const at = hash === "session" ? `#/sessions/${talks.deep.id}` : hash;
    const { page, ok } = await open(browser, proxy, { hash: at });
    await page.locator("main .card, main .rows .row").first().waitFor();
    const seen = new Set();
    let ended = false;
    for (let nth = 0; nth < 60 && !ended; nth += 1) {
      await page.keyboard.press("Tab");
      const name = await page.evaluate(() => {
        const element = document.activeElement;
        if (element === document.body) return null;
        element.dataset.nth ??= String(Math.random());
        const box = element.getBoundingClientRect();
        return {
          key: element.dataset.nth,
          seen: box.width > 0 && box.height > 0 && box.bottom > 0 && box.top < innerHeight,
          html: element.outerHTML.slice(0, 80),
        };
      });
      ended = name === null || seen.has(name.key);
      if (name) {
        seen.add(name.key);
        assert.ok(name.seen, `${name.html} has the focus out of sight`);
      }
    }
    assert.ok(ended && seen.size >= 6, `${seen.size} stops`);
    await ok();
  });
}

test("a wrong key is announced to screen readers", limit, async () => {
  const { page, ok } = await open(browser, guarded, { expected });
  const input = page.getByLabel("Client key");
  await input.fill("wrong");
  await page.keyboard.press("Enter");
  await reads(page.locator("#key-wrong"), "does not know");
  assert.ok((await input.getAttribute("aria-describedby")).includes("key-wrong"));
  await input.fill(KEYS.alice);
  await page.keyboard.press("Enter");
  await page.locator(".empty").waitFor();
  await ok();
});
