// Access by a client's key, the administrator's, and none.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { KEYS, keyed, launch, limit, open, reads, rowOf, start, waitUntil } from "./harness.mjs";

let proxy, shown, browser;
let alice, bob;
const expected = /Failed to load resource/;

before(async () => {
  [proxy, shown, browser] = await Promise.all([start(keyed(false)), start(keyed(true)), launch()]);
  alice = proxy.talk("harbour/deep", KEYS.alice, "a-client/1.0");
  bob = proxy.talk("harbour/deep", KEYS.bob);
  for (const tokens of [6_000, 9_000]) await alice.say("Alice at sea", tokens);
  await bob.say("Bob at sea", 2_000);
}, limit);

after(async () => {
  await browser?.close();
  await proxy?.stop();
  await shown?.stop();
}, limit);

async function enter(page, key) {
  const dialog = page.getByRole("dialog", { name: "A key is needed" });
  await dialog.getByLabel("Client key").fill(key);
  await dialog.getByRole("button", { name: "Use it" }).click();
}

const kept = (page) =>
  page.evaluate(() => [JSON.stringify(localStorage), JSON.stringify(sessionStorage), document.cookie]);

test("a key is asked for, kept in the tab only, and forgotten", limit, async () => {
  const { page, context, ok } = await open(browser, proxy, { expected });
  await enter(page, "a wrong key");
  await reads(page.getByRole("dialog"), "does not know this key");
  await enter(page, "ein Schlüssel 钥匙");
  await reads(page.getByRole("dialog"), "does not know this key");
  await enter(page, KEYS.alice);
  await reads(rowOf(page, alice.id), "Critical");
  assert.equal(await rowOf(page, bob.id).count(), 0);
  assert.equal(await page.locator(".rows .row").count(), 1);
  const [local, session, cookie] = await kept(page);
  assert.ok(session.includes(KEYS.alice) && !local.includes(KEYS.alice) && cookie === "");
  await page.reload();
  await reads(rowOf(page, alice.id), "Critical");
  const other = await context.newPage();
  await other.goto(proxy.page);
  await other.getByRole("dialog", { name: "A key is needed" }).waitFor();
  await other.close();
  // Live, with the key.
  await alice.say("On", 9_100);
  await reads(rowOf(page, alice.id), "9,100");
  await page.getByRole("button", { name: "Forget the key" }).click();
  await page.getByRole("button", { name: "Enter the key" }).waitFor();
  assert.equal(await page.locator(".rows .row").count(), 0);
  assert.ok(!(await kept(page)).join().includes(KEYS.alice));
  await page.getByRole("button", { name: "Enter the key" }).click();
  await enter(page, KEYS.bob);
  await reads(rowOf(page, bob.id), "Healthy");
  assert.equal(await rowOf(page, alice.id).count(), 0);
  await page.evaluate((id) => (location.hash = `#/sessions/${id}`), alice.id);
  await reads(page.getByRole("alert"), "There is no such session");
  await ok();
});

test("a dialogue that was not answered is not opened again by itself", limit, async () => {
  const { page, ok } = await open(browser, proxy, { expected });
  await page.getByRole("dialog").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await reads(page.getByRole("alert"), "The proxy wants a key");
  const asked = page.waitForResponse((answer) => answer.url().endsWith("/events") && answer.status() === 401);
  await asked;
  assert.equal(await page.getByRole("dialog").count(), 0);
  await page.getByRole("button", { name: "Enter the key" }).click();
  await enter(page, KEYS.alice);
  await reads(rowOf(page, alice.id), "Critical");
  await page.getByRole("alert").waitFor({ state: "hidden" });
  await ok();
});

test("the administrator sees all sessions, and texts only where the settings show them", limit, async () => {
  const { page, ok } = await open(browser, proxy, { expected });
  await enter(page, KEYS.admin);
  await reads(rowOf(page, alice.id), "Critical");
  await reads(rowOf(page, bob.id), "Healthy");
  await reads(page.locator("footer"), "as administrator");
  // Without texts, a session is called by its client and its id.
  const called = (page, talk) =>
    rowOf(page, talk.id).locator(".name");
  await reads(called(page, alice), `a-client · session ${alice.id.slice(0, 8)}`);
  await reads(called(page, bob), `Session ${bob.id.slice(0, 8)}`);
  assert.ok(!(await page.locator("body").innerText()).includes("at sea"));
  await alice.say("On", 9_050);
  await reads(rowOf(page, alice.id), "9,050");
  await reads(called(page, alice), "a-client · session");
  await rowOf(page, alice.id).click();
  for (const name of ["Reminders", "Prompts of the proxy", "Summary"]) {
    await reads(page.getByRole("region", { name }), "only where admin.show_content is true");
  }
  assert.equal(await page.locator(".said").count(), 0);
  await ok();

  const talk = shown.talk("harbour/deep", KEYS.alice);
  for (const tokens of [6_000, 9_000]) await talk.say("Alice at sea", tokens);
  const open2 = await open(browser, shown, { expected, hash: `#/sessions/${talk.id}` });
  await enter(open2.page, KEYS.admin);
  await open2.page.getByRole("region", { name: "Prompts of the proxy" }).locator("pre").first().waitFor();
  await reads(open2.page.getByRole("heading", { level: 1 }), "Alice at sea");
  await open2.ok();
});

test("a key for some models sees its providers, and no counts of all clients", limit, async () => {
  const { page, ok } = await open(browser, proxy, { expected, hash: "#/providers" });
  await enter(page, KEYS.bob);
  await reads(page.locator("main"), "for keys that may use every model");
  await reads(page.locator("main"), "harbour/deep");
  assert.equal(await page.getByText("Median").count(), 0);
  await ok();
});

test("without client keys, a credential shows the sessions of that credential", limit, async () => {
  const free = await start("");
  try {
    const talk = free.talk("harbour/deep", "sk-of-an-sdk");
    await talk.say("Hello", 2_000);
    const { page, ok } = await open(browser, free, {});
    await page.getByRole("button", { name: "Use a key" }).click();
    await enter(page, "sk-of-an-sdk");
    await reads(rowOf(page, talk.id), "Healthy");
    await page.getByRole("button", { name: "Forget the key" }).click();
    await rowOf(page, talk.id).waitFor({ state: "detached" });
    await ok();
  } finally {
    await free.stop();
  }
});

test("an empty page says how many sessions other keys have, and what to do", limit, async () => {
  const free = await start("");
  try {
    const { page, ok } = await open(browser, free, {});
    await page.getByRole("heading", { name: "No session yet" }).waitFor();
    const talk = free.talk("harbour/deep", "sk-of-an-sdk");
    await talk.say("Hello", 2_000);
    await page.getByRole("heading", { name: "No session without a key" }).waitFor();
    await reads(page.locator(".others"), "Sessions of other keys on this proxy: 1.");
    await reads(page.locator(".others"), "Open the link that plimsoll prints when it starts on a terminal");
    await reads(page.locator(".others pre"), "local = true");
    await page.getByRole("button", { name: "Enter the key" }).click();
    await enter(page, "sk-of-an-sdk");
    await reads(rowOf(page, talk.id), "Healthy");
    assert.equal(await page.locator(".others").isVisible(), false);
    await page.getByRole("button", { name: "Forget the key" }).click();
    await page.getByRole("button", { name: "Use a key" }).click();
    await enter(page, "sk-of-nobody");
    await page.getByRole("heading", { name: "No session of this key" }).waitFor();
    await ok();
  } finally {
    await free.stop();
  }
});

test("with admin.local the page shows all sessions of this machine to read", limit, async () => {
  const local = await start("\n[admin]\nlocal = true\n");
  try {
    const talk = local.talk("harbour/deep", "sk-of-an-sdk");
    for (const tokens of [6_000, 9_000]) await talk.say("Hello", tokens);
    const { page, ok } = await open(browser, local, {});
    await reads(rowOf(page, talk.id), "Critical");
    await reads(page.locator("footer"), "to read only");
    await reads(rowOf(page, talk.id).locator(".name"), `Session ${talk.id.slice(0, 8)}`);
    await rowOf(page, talk.id).click();
    await page.getByText("This session is shown to read only").waitFor();
    assert.equal(await page.getByRole("button", { name: "Clear" }).isVisible(), false);
    await reads(page.getByRole("region", { name: "Reminders" }), "Enter that key to see them");
    assert.equal(await page.locator(".said").count(), 0);
    await ok();
  } finally {
    await local.stop();
  }
});

test("the link of the start opens one tab for all sessions, with titles, to read", limit, async () => {
  const free = await start("", { terminal: true });
  try {
    const talk = free.talk("harbour/deep", "sk-of-an-sdk");
    for (const tokens of [6_000, 9_000]) await talk.say("Mend the mast", tokens);
    const link = await waitUntil(() => /#link=[0-9a-f]+/.exec(free.printed())?.[0], "the link is printed");
    const { page, context, ok } = await open(browser, free, { hash: link, expected });
    await reads(rowOf(page, talk.id).locator(".name"), "Mend the mast");
    await reads(page.locator("footer"), "by its link, with their titles");
    // Neither the address, nor a cookie, nor what outlives the tab has the link or the secret.
    assert.ok(!page.url().includes("link"));
    const [local, session, cookie] = await kept(page);
    assert.match(session, /plimsoll.tab/);
    assert.ok(!session.includes(link.slice(6)) && !local.includes("tab") && cookie === "");
    // Live, and after a reload.
    await talk.say("On", 9_100);
    await reads(rowOf(page, talk.id), "9,100");
    await page.reload();
    await reads(rowOf(page, talk.id).locator(".name"), "Mend the mast");
    // Another tab shows nothing of it, though tabs with one key share a stream.
    const other = await context.newPage();
    await other.goto(free.page);
    await other.getByRole("heading", { name: "No session without a key" }).waitFor();
    await talk.say("On", 9_200);
    await reads(rowOf(page, talk.id), "9,200");
    assert.equal(await rowOf(other, talk.id).count(), 0);
    // The same link again.
    await other.evaluate((hash) => (location.hash = hash), link);
    await reads(other.getByRole("alert"), "This link was used");
    assert.ok(!other.url().includes("link"));
    await other.getByRole("button", { name: "Go on" }).click();
    await other.getByRole("alert").waitFor({ state: "hidden" });
    assert.equal(await rowOf(other, talk.id).count(), 0);
    // A session: figures, no texts, no buttons.
    await rowOf(page, talk.id).click();
    await page.getByText("This session is shown to read only").waitFor();
    assert.equal(await page.getByRole("button", { name: "Clear" }).isVisible(), false);
    assert.equal(await page.locator(".said").count(), 0);
    await ok();
  } finally {
    await free.stop();
  }
});

test("at 400 pixels nothing of the list is cut, and numbers have their names", limit, async () => {
  const free = await start("");
  try {
    const talk = free.talk("harbour/deep", undefined, "claude-cli/2.0.31");
    for (const tokens of [6_000, 9_000]) await talk.say("Make the rigging hold in a storm, and prove it", tokens);
    await free.talk("harbour/silent").say("A haiku", undefined);
    for (const locale of ["en-GB", "zh-CN"]) {
      const { page, ok } = await open(browser, free, { locale, viewport: { width: 400, height: 1600 } });
      await reads(rowOf(page, talk.id), locale === "en-GB" ? "Tokens 9,000" : "9,000");
      const cut = await page.evaluate(() => {
        const all = [...document.querySelectorAll(".rows *")].filter((it) => it.clientWidth > 1);
        const isCut = (it) =>
          getComputedStyle(it).overflowX !== "visible" &&
          (it.scrollWidth > it.clientWidth + 1 || it.scrollHeight > it.clientHeight + 2);
        return all.filter(isCut).map((it) => `${it.className}: ${it.textContent}`);
      });
      assert.deepEqual(cut, []);
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
      await ok();
    }
    const { page, ok } = await open(browser, free, { hash: "#/providers", viewport: { width: 400, height: 800 } });
    const [busy, failed] = ["Busy", "Failed"].map((name) => page.locator("dt", { hasText: name }).first());
    await busy.waitFor();
    assert.equal((await busy.boundingBox()).y, (await failed.boundingBox()).y);
    await ok();
  } finally {
    await free.stop();
  }
});
