// Many tabs of one browser: they share one event stream, and none waits for a connection.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { KEYS, PATIENCE, keyed, launch, limit, open, reads, rowOf, settled, start, waitUntil } from "./harness.mjs";

const TABS = 8;

let proxy, guarded, browser;

before(async () => {
  [proxy, guarded, browser] = await Promise.all([start(), start(keyed(false)), launch()]);
}, limit);

after(async () => {
  await browser?.close();
  await proxy?.stop();
  await guarded?.stop();
}, limit);

// Opens more tabs, and waits until each has the list.
async function tabs(context, first, url, count, before = async () => {}) {
  const all = [first];
  while (all.length < count) {
    const page = await context.newPage();
    page.setDefaultTimeout(PATIENCE);
    await before(page);
    await page.goto(url);
    all.push(page);
  }
  for (const page of all) await settled(page);
  return all;
}

// The number of event streams that the tabs read.
const streams = (context) => {
  const open = new Map();
  context.on("request", (request) => {
    if (request.url().endsWith("/api/events")) open.set(request, request.frame().page());
  });
  context.on("requestfailed", (request) => open.delete(request));
  context.on("requestfinished", (request) => open.delete(request));
  return () => [...open.values()].filter((page) => !page.isClosed()).length;
};

test("eight tabs show all sessions, follow them, and outlive the tab that reads events", limit, async () => {
  const talk = proxy.talk("harbour/deep");
  await talk.say("One", 2_000);
  let reading;
  const before = (page) => (reading = streams(page.context()));
  const { page, context } = await open(browser, proxy, { before });
  const all = await tabs(context, page, proxy.page, TABS);
  for (const tab of all) await reads(rowOf(tab, talk.id), "Healthy");
  assert.equal(reading(), 1, "one stream for all tabs");
  await talk.say("Two", 6_000);
  for (const tab of all) await reads(rowOf(tab, talk.id), "Caution");
  // The first tab reads the events.
  await all.shift().close();
  await waitUntil(() => reading() === 1, "another one reads");
  for (const tab of all) await settled(tab);
  await talk.say("Three", 9_000);
  for (const tab of all) await reads(rowOf(tab, talk.id), "Critical");
  // A new tab gets them from the reading tab.
  const [, late] = await tabs(context, all[0], proxy.page, 2);
  await reads(rowOf(late, talk.id), "Critical");
  assert.equal(reading(), 1);
  await context.close();
});

test("tabs with different keys share nothing", limit, async () => {
  const [alice, bob] = [KEYS.alice, KEYS.bob].map((key) => guarded.talk("harbour/deep", key));
  await alice.say("Alice at sea", 2_000);
  await bob.say("Bob at sea", 2_000);
  const keep = (key) => (page) => page.addInitScript((given) => sessionStorage.setItem("plimsoll.key", given), key);
  let reading;
  const before = (page) => {
    reading = streams(page.context());
    return keep(KEYS.alice)(page);
  };
  const { page, context } = await open(browser, guarded, { before });
  const [, second] = await tabs(context, page, guarded.page, 2, keep(KEYS.bob));
  await reads(rowOf(page, alice.id), "Healthy");
  await reads(rowOf(second, bob.id), "Healthy");
  assert.equal(reading(), 2);
  await alice.say("On", 9_000);
  await bob.say("On", 6_000);
  await reads(rowOf(page, alice.id), "Critical");
  await reads(rowOf(second, bob.id), "Caution");
  for (const tab of [page, second]) assert.equal(await tab.locator(".rows .row").count(), 1);
  await context.close();
});

test("a visible tab takes over from a sleeping tab that reads events", limit, async () => {
  const talk = proxy.talk("harbour/deep");
  await talk.say("One", 2_000);
  const { page, context } = await open(browser, proxy);
  await settled(page);
  // It holds the lock but passes no events on, like a tab that the browser put to sleep.
  await page.evaluate(() => (BroadcastChannel.prototype.postMessage = () => {}));
  const other = await context.newPage();
  await other.goto(proxy.page);
  await settled(other);
  await talk.say("Two", 9_000);
  await reads(rowOf(other, talk.id), "Critical");
  await context.close();
});

test("without locks each tab polls, and eight of them work", limit, async () => {
  const talk = proxy.talk("harbour/deep");
  await talk.say("One", 2_000);
  const without = (page) => page.addInitScript(() => Object.defineProperty(navigator, "locks", { value: undefined }));
  let reading;
  const before = (page) => {
    reading = streams(page.context());
    return without(page);
  };
  const { page, context } = await open(browser, proxy, { before });
  const all = await tabs(context, page, proxy.page, TABS, without);
  assert.equal(reading(), 0);
  await talk.say("Two", 9_000);
  for (const tab of all) await reads(rowOf(tab, talk.id), "Critical");
  await context.close();
});
