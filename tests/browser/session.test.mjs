// A session: its chart, its state, and the buttons, whose effect is checked by the API.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import {
  CRITICAL,
  OPTIMAL,
  WINDOW,
  launch,
  limit,
  open,
  reads,
  rowOf,
  start,
  waitUntil,
} from "./harness.mjs";

let proxy, browser;

before(async () => {
  [proxy, browser] = await Promise.all([
    start(`
[models."harbour/scribe"]
context_length = 100000

[compaction]
model = "harbour/scribe"
`),
    launch(),
  ]);
}, limit);

after(async () => {
  await browser?.close();
  await proxy?.stop();
}, limit);

// Holds back what waits for `open` until `letGo`.
function gate() {
  let letGo;
  const open = new Promise((done) => (letGo = done));
  return { open, letGo };
}

const report = (talk) => proxy.api(`sessions/${talk.id}`);
const at = (talk) => ({ hash: `#/sessions/${talk.id}` });

// A session past its critical limit, with a reminder and injected prompts.
async function voyage() {
  const talk = proxy.talk("harbour/deep");
  proxy.harbour.note = 'Mind the <b>tide tables</b> & the "bar".';
  for (const tokens of [1_000, 3_000, 6_000, 7_000, 9_000, 9_100])
    await talk.say("On", tokens, Math.floor(tokens * 0.9));
  return talk;
}

test("the chart shows usage, both limits and actions", limit, async () => {
  const talk = await voyage();
  const { points } = await report(talk);
  assert.equal(points.length, 6);
  const { page, ok } = await open(browser, proxy, at(talk));
  const picture = page.getByRole("img", { name: "Chart: 6 points, generation 1 to 6, last 9,100 tokens" });
  await picture.waitFor();
  const drawn = await picture.evaluate((svg) => {
    const numbers = (path) => path.match(/-?\d+(\.\d+)?/g).map(Number);
    const level = (name) => numbers(svg.querySelector(`.line.${name}`).getAttribute("d"))[1];
    const places = numbers(svg.querySelector(".tokens").getAttribute("d"));
    return {
      window: level("window"),
      critical: level("critical"),
      optimal: level("optimal"),
      heights: places.filter((_, at) => at % 2),
    };
  });
  // The scale of the chart follows from two lines, and must fit the third and all points.
  const perPixel = (WINDOW - OPTIMAL) / (drawn.optimal - drawn.window);
  const tokens = (y) => WINDOW - (y - drawn.window) * perPixel;
  assert.ok(Math.abs(tokens(drawn.critical) - CRITICAL) < 5);
  assert.deepEqual(
    drawn.heights.map((y) => Math.round(tokens(y) / 100) * 100),
    points.map((point) => point.prompt_tokens),
  );
  const injected = points.filter((point) => point.marks.includes("injected")).length;
  assert.ok(injected >= 2, JSON.stringify(points));
  assert.equal(await picture.locator(".shape.injected").count(), injected);
  assert.equal(await picture.locator("rect.cache").count(), 6);
  await reads(page.locator(".legend li"), `Prompt injected (${injected})`);

  const slider = page.getByRole("slider", { name: "Point of the chart" });
  await slider.focus();
  await reads(page.locator(".tip"), "Generation 6");
  await page.keyboard.press("Home");
  await reads(page.locator(".tip"), "1,000 tokens");
  assert.equal(await slider.getAttribute("aria-valuetext"), "Generation 1, 1,000 tokens, 12 tokens in the answer, 900 from the cache");
  await page.keyboard.press("ArrowRight");
  await reads(page.locator(".tip"), "Generation 2");
  await page.getByText("As a table").click();
  const cells = await page.getByRole("row", { name: /^4 / }).innerText();
  assert.ok(/7,000\s+12\s+6,300\s/.test(cells), cells);
  await ok();
});

test("prompts, reminders and the parts of the last request are shown in full", limit, async () => {
  const talk = await voyage();
  const known = await report(talk);
  assert.ok(known.prompts.length >= 1 && known.reminders.length >= 1);
  const { page, ok } = await open(browser, proxy, at(talk));
  const texts = (name) => page.getByRole("region", { name }).locator("pre").allTextContents();
  await page.getByRole("region", { name: "Reminders" }).locator("pre").first().waitFor();
  assert.deepEqual(
    await texts("Reminders"),
    known.reminders.map((one) => one.text),
  );
  assert.deepEqual(
    await texts("Prompts of the proxy"),
    known.prompts.map((one) => one.text),
  );
  assert.ok(known.reminders[0].text.includes("<b>"));
  assert.equal(await page.locator("main b").count(), 0);
  const made = page.getByRole("region", { name: "What the last request was made of" });
  const bar = await made.getByRole("img").getAttribute("aria-label");
  for (const part of [
    `History: ${known.made_of.history.toLocaleString("en")} tokens`,
    `Added by the proxy: ${known.made_of.ours.toLocaleString("en")} tokens`,
    "Reserve for the answer: 2,500 tokens",
  ]) {
    assert.ok(bar.includes(part), `${part} in ${bar}`);
  }
  // With what is free, the parts are the window.
  const counts = [...bar.matchAll(/(?<!Left out by the guard): ([\d,]+) tokens/g)];
  const sum = counts.reduce((all, [, count]) => all + Number(count.replace(",", "")), 0);
  assert.equal(sum, WINDOW, bar);
  await reads(made.locator("li", { hasText: "Reserve for the answer" }), "25%");
  await reads(made, "percentages are of the window");
  await reads(page.getByRole("region", { name: "Summary" }), "There is none.");
  await reads(page.locator("dd"), talk.id);
  const total = page.locator(".facts div", { hasText: "Prompt and answer together" });
  await reads(total.locator("dd"), known.total_tokens.toLocaleString("en"));
  await ok();
});

test("a session is called by its task, and the browser's history by its id", limit, async () => {
  const talk = proxy.talk("harbour/deep", undefined, "claude-cli/2.0 (cli)");
  await talk.say("<system-reminder>Be brief.</system-reminder> Mend the mast", 2_000);
  const { page, ok } = await open(browser, proxy, at(talk));
  await reads(page.getByRole("heading", { level: 1 }), "Mend the mast");
  assert.equal(await page.title(), `Session ${talk.id.slice(0, 8)} · Plimsoll`);
  await reads(page.locator(".facts div", { hasText: "Client program" }), "claude-cli");
  await ok();
});

test("the page follows the session", limit, async () => {
  const talk = proxy.talk("harbour/deep");
  await talk.say("One", 2_000);
  const { page, ok } = await open(browser, proxy, at(talk));
  await reads(page.locator(".load"), "20% of the window · 2,000 of 10,000 tokens");
  await reads(page.locator(".load-card"), "optimal up to 50% (5,000) · critical above 80% (8,000)");
  await page.evaluate(() => (window.same = true));
  await talk.say("Two", 8_500);
  await reads(page.locator(".load"), "85% of the window · 8,500 of 10,000 tokens");
  await reads(page.locator(".load-card .pill"), "Critical");
  await page.getByRole("img", { name: "Chart: 2 points" }).waitFor();
  assert.equal(await page.evaluate(() => window.same), true);
  await ok();
});

test("the compact button orders a summary, and its progress is shown", limit, async () => {
  const talk = proxy.talk("harbour/deep");
  for (const tokens of [1_000, 2_000, 3_000]) await talk.say("The log of the day. ".repeat(200), tokens);
  const { page, ok } = await open(browser, proxy, at(talk));
  proxy.harbour.hold();
  const button = page.getByRole("button", { name: "Compact" });
  const what = page.locator(`#${await button.getAttribute("aria-describedby")}`);
  await reads(what, "A model summarises the older part after the answer to the next request");
  await button.click();
  await page.getByText("The next request of this session begins a summary.").waitFor();
  assert.equal((await report(talk)).compact_pending, true);
  assert.equal(await button.getAttribute("aria-disabled"), "true");
  await talk.say("Go on", 3_500);
  await reads(page.locator(".load-card .notes"), "compacting…");
  await reads(page.locator(".actions"), "compacting…");
  assert.equal((await report(talk)).compacting, true);
  const on = page.getByRole("radio", { name: "On", exact: true });
  await waitUntil(() => on.isDisabled(), "the switch waits for the summary");
  await reads(page.locator("fieldset"), "A summary is being made");
  await page.getByRole("link", { name: "All sessions" }).click();
  await reads(rowOf(page, talk.id), "compacting…");
  await page.goBack();
  await reads(page.locator(".actions"), "compacting…");
  proxy.harbour.letGo();
  await waitUntil(() => proxy.harbour.requests.some((one) => one.model === "scribe"), "the scribe was asked");
  const over = async () => {
    // The next request uses the result.
    await talk.say("And on", 3_600);
    return !(await report(talk)).compacting;
  };
  await waitUntil(over, "the summary is over");
  await page.locator(".load-card .notes", { hasText: "compacting…" }).waitFor({ state: "hidden" });
  await reads(page.locator(".facts div", { hasText: "Failed since" }), "1");
  assert.equal(await on.isDisabled(), false);
  await ok();
});

test("the clear button asks first, and the next request begins a new course", limit, async () => {
  const talk = proxy.talk("harbour/deep");
  for (const tokens of [1_000, 2_000, 3_000]) await talk.say("The log of the day. ".repeat(120), tokens);
  const { page, ok } = await open(browser, proxy, at(talk));
  const button = page.getByRole("button", { name: "Clear" });
  const dialog = page.getByRole("dialog", { name: "Begin a new course?" });
  const what = page.locator(`#${await button.getAttribute("aria-describedby")}`);
  await reads(what, "The next request goes out without its older history");
  await button.click();
  await reads(dialog, "A summary is dropped. No model is asked for it.");
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await dialog.waitFor({ state: "detached" });
  assert.equal((await report(talk)).clear_pending, false);
  await button.click();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  assert.equal((await report(talk)).clear_pending, false);
  assert.ok(await button.evaluate((element) => element === document.activeElement));
  await button.click();
  await dialog.getByRole("button", { name: "Clear" }).click();
  await page.getByText("The next request of this session begins a new course.").waitFor();
  assert.equal((await report(talk)).clear_pending, true);
  await talk.say("Go on", 900);
  await reads(page.locator(".load-card"), "Course 2");
  await page.locator(".shape.course").first().waitFor({ state: "attached" });
  assert.equal((await report(talk)).clear_pending, false);
  await ok();
});

test("automatic compaction follows, or is switched on and off", limit, async () => {
  const talk = proxy.talk("harbour/deep");
  await talk.say("One", 2_000);
  const { page, ok } = await open(browser, proxy, at(talk));
  const radio = (name) => page.getByRole("radio", { name, exact: true });
  await radio("As the settings say (off)").waitFor();
  await reads(page.locator("fieldset"), "Strategy: Cost first (up to 0.6: summarise early, pay little)");
  assert.ok(await radio("As the settings say (off)").isChecked());
  for (const [name, value] of [
    ["On", "on"],
    ["Off", "off"],
    ["As the settings say (off)", "follow"],
  ]) {
    await radio(name).check();
    await waitUntil(async () => (await report(talk)).auto_compact === value, value);
    assert.ok(await radio(name).isChecked());
  }
  // A switch by another client is shown.
  await proxy.api(`sessions/${talk.id}`, { method: "PATCH", body: { auto_compact: "on" } });
  await waitUntil(() => radio("On").isChecked(), "the switch follows");
  await ok();
});

test("settings are shown also where they load late", limit, async () => {
  const talk = proxy.talk("harbour/deep");
  await talk.say("One", 2_000);
  const late = gate();
  const hold = async (route) => {
    await late.open;
    await route.continue();
  };
  const before = (page) => page.route("**/api/about", hold);
  const { page, ok } = await open(browser, proxy, { ...at(talk), before });
  const radio = (name) => page.getByRole("radio", { name, exact: true });
  await radio("As the settings say").waitFor();
  late.letGo();
  await radio("As the settings say (off)").waitFor();
  await ok();
});

test("an answer from before a switch does not switch it back", limit, async () => {
  const talk = proxy.talk("harbour/deep");
  await talk.say("One", 2_000);
  const { page, ok } = await open(browser, proxy, at(talk));
  const on = page.getByRole("radio", { name: "On", exact: true });
  await on.waitFor();
  const late = gate();
  let read = 0;
  await page.route(`**/api/sessions/${talk.id}`, async (route) => {
    if (route.request().method() !== "GET") return route.continue();
    // The state at the time of the request.
    const answer = await route.fetch();
    read += 1;
    await late.open;
    await route.fulfill({ response: answer });
  });
  await talk.say("Two", 2_500);
  await waitUntil(() => read === 1, "the page reads the session");
  await on.check();
  await waitUntil(async () => (await report(talk)).auto_compact === "on", "it is switched");
  late.letGo();
  await waitUntil(() => read > 1, "it is read once more");
  await reads(page.locator(".load"), "2,500");
  assert.ok(await on.isChecked());
  await ok();
});

test("where the window is unknown it says how to set it", limit, async () => {
  const talk = proxy.talk("harbour/nobody-knows");
  await talk.say("One", 2_000);
  const { page, ok } = await open(browser, proxy, {
    ...at(talk),
    permissions: ["clipboard-write", "clipboard-read"],
  });
  await reads(page.locator(".load"), "2,000 tokens, window unknown");
  await reads(page.locator(".actions"), "nothing is summarised by itself");
  const on = page.getByRole("radio", { name: "On", exact: true });
  assert.equal(await on.isDisabled(), true);
  await on.click({ force: true });
  await on.press("Space");
  assert.equal(await on.isChecked(), false);
  assert.equal((await report(talk)).auto_compact, "follow");
  const lines = '[models."harbour/nobody-knows"]\ncontext_length = 128000';
  assert.equal(await page.locator(".hint pre").textContent(), lines);
  await page.locator(".hint").getByRole("button", { name: "Copy" }).click();
  await page.getByText("Copied.").waitFor();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), lines);
  await ok();
});

test("an unknown level has its reason beside it, in both languages", limit, async () => {
  const talk = proxy.talk("harbour/silent");
  await talk.say("One");
  assert.equal((await report(talk)).health_reason, "no_usage");
  const { page, ok } = await open(browser, proxy, at(talk));
  await reads(page.locator(".load-card .state"), "Unknown");
  await reads(page.locator(".load-card .reason"), "The provider reported no usage.");
  await page.getByRole("button", { name: "中文" }).click();
  await reads(page.locator(".load-card .reason"), "服务商没有报告用量。");
  // The same words as in the proxy's prompts.
  await page.getByRole("heading", { name: "提醒项" }).waitFor();
  const said = await page.locator("body").innerText();
  assert.ok(!/备忘|航程/.test(said), said);
  await ok();
});

test("a reload stays, back goes back, and a missing session is reported", limit, async () => {
  const talk = proxy.talk("harbour/deep");
  await talk.say("One", 2_000);
  const expected = /Failed to load resource/;
  const { page, ok } = await open(browser, proxy, { expected });
  await rowOf(page, talk.id).click();
  await reads(page.locator(".load"), "2,000");
  await page.reload();
  await reads(page.locator(".load"), "2,000");
  await page.goBack();
  await rowOf(page, talk.id).waitFor();
  await page.evaluate((id) => (location.hash = `#/sessions/${id}`), "0".repeat(32));
  await reads(page.getByRole("alert"), "There is no such session");
  await ok();
});
