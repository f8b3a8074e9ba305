// The providers: breakers, counts, times, and unknown windows.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { launch, limit, open, post, reads, start } from "./harness.mjs";

let proxy, browser;

before(async () => {
  [proxy, browser] = await Promise.all([start('\n[compaction]\nauto = true\nthreshold = 0.7\n[models."harbour/gpt-4o"]\ncaution_cadence = 10\n'), launch()]);
}, limit);

after(async () => {
  await browser?.close();
  await proxy?.stop();
}, limit);

const figure = (card, name) =>
  card.locator(".facts div", { has: card.page().locator("dt", { hasText: name }) }).locator("dd");

test("counts, times and models are shown as they change", limit, async () => {
  const { page, ok } = await open(browser, proxy, { hash: "#/providers" });
  const card = page.getByRole("region", { name: "harbour", exact: true });
  await reads(figure(card, "Breaker"), "closed: in use");
  await reads(figure(card, "Answered"), /^0$/);
  await reads(figure(card, "Time to the answer"), "unknown");
  const talk = proxy.talk("harbour/nobody-knows");
  await talk.say("One", 100);
  await talk.say("Two", 200);
  await reads(figure(card, "Answered"), /^2$/);
  await reads(figure(card, "Time to the answer"), "of the last 2");
  const row = card.getByRole("row", { name: /^harbour\/nobody-knows/ });
  await reads(row, "unknown");
  await reads(row, "only assumed");
  await reads(card.locator(".hint pre"), '[models."harbour/nobody-knows"]');
  await reads(card.getByRole("row", { name: /gpt-4o/ }), "128,000");
  await reads(card.getByRole("row", { name: /gpt-4o/ }), "catalogue by name");
  await reads(card.getByRole("row", { name: /deep/ }), "10,000");
  await reads(card.getByRole("row", { name: /deep/ }), "settings");
  await ok();
});

test("an open breaker is shown at once", limit, async () => {
  const { page, ok } = await open(browser, proxy, { hash: "#/providers" });
  const card = page.getByRole("region", { name: "harbour", exact: true });
  await reads(figure(card, "Breaker"), "closed");
  for (let nth = 0; nth < 6; nth += 1) {
    const asked = { model: "harbour/broken", messages: [{ role: "user", content: `sink ${nth}` }] };
    assert.ok((await post(proxy.url, asked)).status >= 500);
  }
  await reads(figure(card, "Breaker"), "open: passed over");
  await ok();
});

test("the compaction strategy is shown", limit, async () => {
  const { page, ok } = await open(browser, proxy, { hash: "#/providers" });
  const card = page.getByRole("region", { name: "Compaction" });
  await reads(figure(card, "Strategy"), "Balanced");
  await reads(figure(card, "From"), "0.7 of the window without the reserve");
  await reads(figure(card, "By itself"), "on");
  await page.getByRole("button", { name: "中文" }).click();
  await reads(page.getByRole("region", { name: "压缩" }), "平衡模式");
  await ok();
});
