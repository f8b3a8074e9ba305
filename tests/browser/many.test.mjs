// Five thousand sessions from five thousand requests: the page stays small and fast.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { PATIENCE, launch, open, post, reads, rowOf, start, waitUntil } from "./harness.mjs";

const MANY = 5_000;
// Row elements allowed in the document: those visible in a tall window, and a margin.
const ROWS = 60;
// Milliseconds that the page may block without a break. A good machine needs a twentieth of it.
const BUSY = 2_000;
const limit = { timeout: 6 * PATIENCE };

let proxy, browser;

before(async () => {
  [proxy, browser] = await Promise.all([start(), launch()]);
  const models = ["plimsoll-8k", "plimsoll-32k", "plimsoll-128k"];
  let next = 0;
  const worker = async () => {
    while (next < MANY) {
      const nth = next++;
      const content = `Log of voyage ${nth}. ${"Wind and tide. ".repeat(nth % 40)}`;
      const asked = { model: `simulated/${models[nth % 3]}`, messages: [{ role: "user", content }] };
      const { status } = await post(proxy.url, asked);
      assert.equal(status, 200);
    }
  };
  await Promise.all(Array.from({ length: 32 }, worker));
}, limit);

after(async () => {
  await browser?.close();
  await proxy?.stop();
}, limit);

// The longest block since the last call, in milliseconds.
const busy = (page) =>
  page.evaluate(() => {
    const longest = Math.max(0, ...window.tasks.splice(0));
    return Math.round(longest);
  });

const rows = (page) => page.locator(".rows .row").count();
const count = (page) => page.locator(".count").textContent();

test("five thousand sessions are read, scrolled, searched and followed", limit, async (context) => {
  const watch = (page) =>
    page.addInitScript(() => {
      window.tasks = [];
      new PerformanceObserver((list) =>
        window.tasks.push(...list.getEntries().map((one) => one.duration)),
      ).observe({ type: "longtask", buffered: true });
    });
  const begun = performance.now();
  const { page, ok } = await open(browser, proxy, { before: watch });
  await page.getByText("5,000 in all").waitFor();
  const told = { "read, ms": Math.round(performance.now() - begun), "busy while read, ms": await busy(page) };
  assert.ok((await rows(page)) <= ROWS);
  assert.equal(await page.getByRole("grid").getAttribute("aria-rowcount"), String(MANY + 1));

  // Scrolls through the whole list, frame by frame; each frame has rows.
  const scrolled = await page.evaluate(async () => {
    const frame = () => new Promise((done) => requestAnimationFrame(done));
    const all = document.documentElement.scrollHeight;
    let most = 0;
    let blank = 0;
    let longest = 0;
    let before = await frame();
    for (let at = 0; at < 150; at += 1) {
      scrollTo(0, (all * at) / 150);
      const now = await frame();
      longest = Math.max(longest, now - before);
      before = now;
      await new Promise((done) => setTimeout(done));
      const shown = [...document.querySelectorAll(".rows .row")];
      most = Math.max(most, shown.length);
      const middle = document.elementFromPoint(innerWidth / 2, innerHeight / 2);
      if (!middle?.closest(".row")) blank += 1;
    }
    return { most, blank, longest: Math.round(longest) };
  });
  assert.ok(scrolled.most <= ROWS, `${scrolled.most} rows`);
  assert.equal(scrolled.blank, 0, "frames without rows");
  told["longest frame while scrolled, ms"] = scrolled.longest;
  told["busy while scrolled, ms"] = await busy(page);

  await page.locator(".rows .name").first().focus();
  await page.keyboard.press("End");
  await page.locator(`.rows [aria-rowindex="${MANY + 1}"] a:focus`).waitFor();
  await page.keyboard.press("Home");
  await page.locator('.rows [aria-rowindex="2"] a:focus').waitFor();

  const search = page.getByLabel("Search");
  for (const word of ["plimsoll-32k", "plimsoll-8k healthy", "no such", "simulated"]) {
    await search.fill("");
    await search.pressSequentially(word);
    await waitUntil(async () => (await search.inputValue()) === word, "typed");
  }
  await page.getByText("5,000 in all").waitFor();
  told["busy while typed, ms"] = await busy(page);
  await search.fill("plimsoll-32k");
  await waitUntil(async () => (await count(page)) === "1,667 of 5,000", "a third is found");
  for (const column of ["Tokens", "Model", "Load"]) {
    await page.getByRole("columnheader", { name: column }).getByRole("button").click();
    await waitUntil(
      async () =>
        (await page.getByRole("columnheader", { name: column }).getAttribute("aria-sort")) !== "none",
      column,
    );
  }
  told["busy while sorted, ms"] = await busy(page);
  await search.fill("");

  // A hundred concurrent requests while the page is open.
  await page.getByRole("columnheader", { name: "Last seen" }).getByRole("button").click();
  const asked = Array.from({ length: 100 }, (_, nth) => ({
    model: "simulated/plimsoll-8k",
    messages: [{ role: "user", content: `Storm ${nth}` }],
  }));
  const answers = await Promise.all(asked.map((body) => post(proxy.url, body)));
  await page.getByText("5,100 in all").waitFor();
  await rowOf(page, answers[0].headers["x-plimsoll-session"])
    .or(page.locator(".rows .row"))
    .first()
    .waitFor();
  told["busy while a hundred came, ms"] = await busy(page);
  assert.ok((await rows(page)) <= ROWS);
  await reads(page.locator(".live"), "Live");
  for (const [name, value] of Object.entries(told)) context.diagnostic(`${name}: ${value}`);
  for (const [name, value] of Object.entries(told))
    if (name.includes("busy")) assert.ok(value < BUSY, `${name}: ${value}`);
  await ok();
});
