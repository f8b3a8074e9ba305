// The list of sessions: its rows, search, order and updates.

import assert from "node:assert/strict";
import net from "node:net";
import { once } from "node:events";
import { after, before, test } from "node:test";

import { launch, limit, open, post, reads, rowOf, settled, start, waitUntil } from "./harness.mjs";

let proxy, browser;
const talks = {};

before(async () => {
  [proxy, browser] = await Promise.all([start(), launch()]);
}, limit);

after(async () => {
  await browser?.close();
  await proxy?.stop();
}, limit);

async function seed() {
  if (talks.calm) return;
  for (const [name, model, tokens] of [
    ["calm", "harbour/deep", 3_000],
    ["full", "harbour/deep", 6_000],
    ["over", "harbour/deep", 9_000],
    ["dark", "harbour/nobody-knows", 700],
    ["mute", "harbour/silent", undefined],
  ]) {
    talks[name] = proxy.talk(model);
    await talks[name].say(`Log of ${name}`, tokens);
  }
}

const ids = (page) =>
  page.locator(".rows [data-id]").evaluateAll((rows) => rows.map((row) => row.dataset.id));
const names = async (page) => {
  const known = Object.fromEntries(Object.entries(talks).map(([name, talk]) => [talk.id, name]));
  return (await ids(page)).map((id) => known[id]);
};
// Rows are in reading order.
const ordered = (page, expected) =>
  waitUntil(
    async () => JSON.stringify(await names(page)) === JSON.stringify(expected),
    `the order ${expected}`,
  );

test("without a session the page shows how to send a request, and shows the first", limit, async () => {
  const { page, ok } = await open(browser, proxy);
  const empty = page.locator(".empty");
  await reads(empty, "curl -i");
  const lines = await empty.locator("pre").allTextContents();
  assert.equal(lines[0], `export OPENAI_BASE_URL=${proxy.url}/v1`);
  assert.equal(lines[1], `export ANTHROPIC_BASE_URL=${proxy.url}`);
  assert.equal(await page.locator(".key").isVisible(), false);
  const curl = lines.find((line) => line.includes("/v1/chat/completions"));
  assert.ok(curl.includes(`${proxy.url}/v1/chat/completions`));
  const body = JSON.parse(/-d '(.*)'/s.exec(curl)[1]);
  // Without a name of its client, as all others of this file.
  const answer = await post(proxy.url, body);
  assert.equal(answer.status, 200);
  await rowOf(page, answer.headers["x-plimsoll-session"]).waitFor();
  await empty.waitFor({ state: "hidden" });
  await ok();
});

test("a row shows the load line, the level and the rest", limit, async () => {
  await seed();
  const { page, ok } = await open(browser, proxy);
  const row = rowOf(page, talks.full.id);
  await reads(row, "Caution");
  const text = await row.innerText();
  const id = talks.full.id.slice(0, 8);
  for (const part of ["Log of full", "60%", "6,000", "deep", "harbour", "Course 1", id, "just now"]) {
    assert.ok(text.includes(part), `${part} in ${text}`);
  }
  const places = await row.locator(".gauge").evaluate((gauge) => {
    const whole = gauge.getBoundingClientRect();
    const at = (x) => Math.round((100 * (x - whole.left)) / whole.width);
    const centre = (name) => {
      const mark = gauge.querySelector(name).getBoundingClientRect();
      return at((mark.left + mark.right) / 2);
    };
    // The bar may still be animated.
    gauge
      .querySelector(".fill")
      .getAnimations()
      .forEach((one) => one.finish());
    const fill = gauge.querySelector(".fill").getBoundingClientRect();
    return { fill: at(fill.right), optimal: centre(".optimal"), critical: centre(".critical") };
  });
  assert.deepEqual(places, { fill: 60, optimal: 50, critical: 80 });
  const said = await row.locator(".gauge").getAttribute("aria-label");
  assert.equal(said, "60% of a window of 10,000 tokens, optimal up to 5,000, critical above 8,000");
  await reads(rowOf(page, talks.calm.id), "Healthy");
  await reads(rowOf(page, talks.over.id), "Critical");
  await reads(rowOf(page, talks.over.id), "clear in");
  const dark = rowOf(page, talks.dark.id);
  await reads(dark, "window unknown");
  assert.ok((await dark.innerText()).includes("700"));
  await reads(rowOf(page, talks.mute.id), "no count");
  await reads(rowOf(page, talks.mute.id), "Unknown");
  const why = rowOf(page, talks.mute.id).locator(".part");
  const lines = () => why.evaluate((part) => {
    const range = document.createRange();
    range.selectNodeContents(part);
    return new Set([...range.getClientRects()].map((rect) => Math.round(rect.top))).size;
  });
  for (const width of [1200, 900, 360]) {
    await page.setViewportSize({ width, height: 800 });
    assert.equal(await lines(), 1, `the reason is on one line at ${width} px`);
  }
  await page.setViewportSize({ width: 1200, height: 800 });
  const grey = await rowOf(page, talks.mute.id)
    .locator(".pill")
    .evaluate((pill) => getComputedStyle(pill).color);
  const [red, green, blue] = /(\d+), (\d+), (\d+)/.exec(grey).slice(1).map(Number);
  assert.ok(Math.max(red, green, blue) - Math.min(red, green, blue) < 40, `${grey} is no grey`);
  const colours = await Promise.all(
    ["calm", "full", "over", "mute"].map((name) =>
      rowOf(page, talks[name].id)
        .locator(".fill")
        .evaluate((fill) => getComputedStyle(fill).backgroundColor),
    ),
  );
  assert.equal(new Set(colours).size, 4, "each level has a colour of its own");
  await ok();
});

test("search, levels and order, which a reload keeps", limit, async () => {
  await seed();
  const { page, ok } = await open(browser, proxy);
  await settled(page);
  const search = page.getByLabel("Search");
  for (const [words, found] of [
    ["nobody", ["dark"]],
    [talks.calm.id.slice(3, 20), ["calm"]],
    ["critical", ["over"]],
    ["告急", ["over"]],
    ["deep CAUTION", ["full"]],
    ["harbour silent", ["mute"]],
    ["log of dark", ["dark"]],
  ]) {
    await search.fill(words);
    await ordered(page, found);
  }
  await search.fill("no such thing");
  await page.getByText("No session matches.").waitFor();
  await page.getByRole("button", { name: "Show all" }).click();
  assert.equal(await search.inputValue(), "");
  await search.fill("harbour");
  for (const [column, down, up] of [
    ["Load", ["over", "full", "calm"], ["calm", "full", "over"]],
    ["Tokens", ["over", "full", "calm", "dark"], ["dark", "calm", "full", "over"]],
    ["Level", ["over", "full", "calm", "mute"], ["mute", "calm", "full", "over"]],
  ]) {
    const head = page.getByRole("columnheader", { name: column });
    await head.getByRole("button").click();
    const rest = Object.keys(talks).filter((name) => !down.includes(name));
    const inOrder = async (part) =>
      (await names(page)).filter((name) => !rest.includes(name)).join() === part.join();
    await waitUntil(
      async () => (await head.getAttribute("aria-sort")) === "descending" && inOrder(down),
      `${column} down`,
    );
    await head.getByRole("button").click();
    await waitUntil(
      async () => (await head.getAttribute("aria-sort")) === "ascending" && inOrder(up),
      `${column} up`,
    );
  }
  for (const column of ["Session", "Model", "Provider", "Course", "Left out", "Last seen"]) {
    const head = page.getByRole("columnheader", { name: column });
    await head.getByRole("button").click();
    const sorted = async () => (await head.getAttribute("aria-sort")) !== "none";
    await waitUntil(sorted, `sorted by ${column}`);
  }
  await page.getByRole("columnheader", { name: "Tokens" }).getByRole("button").click();
  const chip = page.getByRole("button", { name: "Healthy" });
  await chip.click();
  await ordered(page, ["calm", "dark"]);
  await page.reload();
  await ordered(page, ["calm", "dark"]);
  assert.equal(await search.inputValue(), "harbour");
  assert.equal(await chip.getAttribute("aria-pressed"), "true");
  await chip.click();
  await waitUntil(async () => (await names(page))[0] === "over", "the most tokens first");
  await ok();
});

test("a request through the proxy changes the open page", limit, async () => {
  await seed();
  const { page, ok } = await open(browser, proxy);
  await settled(page);
  await reads(rowOf(page, talks.calm.id), "3,000");
  await page.evaluate(() => (window.same = true));
  await talks.calm.say("More", 4_200);
  await reads(rowOf(page, talks.calm.id), "4,200");
  await waitUntil(async () => (await ids(page))[0] === talks.calm.id, "the newest is first");
  const fresh = proxy.talk("harbour/deep");
  await fresh.say("Hello", 1_234);
  await reads(rowOf(page, fresh.id), "1,234");
  assert.equal(await page.evaluate(() => window.same), true);
  await talks.calm.say("Less", 3_000);
  await reads(rowOf(page, talks.calm.id), "3,000");
  await ok();
});

test("a lost connection is shown, and missed events are read", limit, async (t) => {
  await seed();
  // A connection between page and proxy that the test can cut.
  const sockets = new Set();
  const { port } = new URL(proxy.url);
  const cable = net.createServer((near) => {
    const far = net.connect(port, "127.0.0.1");
    for (const [one, other] of [
      [near, far],
      [far, near],
    ]) {
      sockets.add(one);
      one.on("error", () => other.destroy()).on("close", () => sockets.delete(one));
      one.pipe(other);
    }
  });
  const cut = () => {
    for (const socket of sockets) socket.destroy();
  };
  t.after(() => {
    cable.close();
    cut();
  });
  const listen = async (at) => {
    cable.listen(at, "127.0.0.1");
    await once(cable, "listening");
    return cable.address().port;
  };
  const near = await listen(0);
  const through = { page: `http://127.0.0.1:${near}/plimsoll/` };
  const { page, ok } = await open(browser, through, { expected: /Failed to load resource/ });
  await settled(page);
  const closed = once(cable, "close");
  cable.close();
  cut();
  await closed;
  await reads(page.locator(".live"), "Reconnecting");
  await reads(page.locator(".problem.page"), "The proxy does not answer");
  const missed = proxy.talk("harbour/deep");
  await missed.say("Nobody looks", 2_345);
  await listen(near);
  // The page tries by itself too, and the button goes with the problem.
  const mended = page.locator(".problem.page").waitFor({ state: "hidden" });
  await Promise.race([page.getByRole("button", { name: "Try now" }).click(), mended]);
  await reads(rowOf(page, missed.id), "2,345");
  await reads(page.locator(".live"), "Live");
  await mended;
  await ok();
});

test("on a phone everything fits the width of the screen", limit, async () => {
  await seed();
  const { page, ok } = await open(browser, proxy, {
    viewport: { width: 360, height: 740 },
    hasTouch: true,
    isMobile: true,
  });
  const row = rowOf(page, talks.over.id);
  await reads(row, "Critical");
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 360);
  for (const part of ["Log of over", "90%", "9,000", "deep", "harbour", "Course 1"]) await reads(row, part);
  const box = await row.boundingBox();
  for (const cell of await row.locator("[role=gridcell]:visible").all()) {
    const { x, y, width, height } = await cell.boundingBox();
    assert.ok(
      x >= box.x && x + width <= box.x + box.width + 1 && y >= box.y && y + height <= box.y + box.height + 1,
    );
  }
  await page.getByLabel("Sort by").selectOption("tokens");
  await waitUntil(async () => (await names(page))[0] === "over", "the most tokens first");
  await page.getByRole("button", { name: "Descending" }).tap();
  await waitUntil(async () => (await names(page)).at(-1) === "over", "the most tokens last");
  await row.tap();
  await page.getByRole("heading", { level: 1, name: "Session" }).waitFor();
  await ok();
});

test("sessions of one client stand together under its name", limit, async () => {
  const own = await start();
  try {
    const talk = (agent) => own.talk("harbour/deep", undefined, agent);
    const [first, second, plain, third] = [talk("claude-cli/2.0 (cli)"), talk("codex_cli_rs/0.4"), talk(), talk("claude-cli/2.1")];
    await first.say("Mend the mast", 9_000);
    const { page, ok } = await open(browser, own);
    await rowOf(page, first.id).waitFor();
    // One client needs no heading.
    assert.equal(await page.locator(".of-program").count(), 0);
    assert.equal(await page.getByRole("button", { name: "By client" }).isVisible(), false);
    for (const [one, words] of [[second, "Sew the sail"], [plain, "Ahoy"], [third, "Coil the ropes"]]) {
      await one.say(words, 2_000);
      await rowOf(page, one.id).waitFor();
    }
    const rows = () =>
      page.locator(".rows .row").evaluateAll((all) => all.map((row) => row.querySelector(".name bdi").textContent));
    const are = (expected) =>
      waitUntil(async () => {
        const found = (await rows()).map((text) => text.replace(/ \(talk-.*/, ""));
        return JSON.stringify(found) === JSON.stringify(expected);
      }, `the rows ${expected}`);
    const search = page.getByLabel("Search");
    await page.getByRole("columnheader", { name: "Session" }).getByRole("button").click();
    const claude = ["claude-cli", "Coil the ropes", "Mend the mast"];
    const codex = ["codex_cli_rs", "Sew the sail"];
    await are(["Client without a name", "Ahoy", ...claude, ...codex]);
    const heading = page.getByRole("button", { name: "claude-cli sessions: 2" });
    const levels = page.locator(".of-program", { has: heading }).locator(".levels");
    assert.equal(await levels.innerText(), "Critical 1\nHealthy 1");
    assert.equal(await page.getByRole("grid").getAttribute("aria-rowcount"), "8");
    await heading.click();
    await are(["Client without a name", "Ahoy", "claude-cli", ...codex]);
    assert.equal(await heading.getAttribute("aria-expanded"), "false");
    // By keyboard: from a session to a heading, which is unfolded.
    await rowOf(page, second.id).locator(".name").focus();
    await page.keyboard.press("ArrowUp");
    await page.keyboard.press("ArrowUp");
    await page.keyboard.press("Enter");
    await are(["Client without a name", "Ahoy", ...claude, ...codex]);
    const group = page.getByRole("button", { name: "By client" });
    assert.equal(await group.getAttribute("aria-pressed"), "true");
    await group.click();
    await are(["Ahoy", "Coil the ropes", "Mend the mast", "Sew the sail"]);
    await page.reload();
    await are(["Ahoy", "Coil the ropes", "Mend the mast", "Sew the sail"]);
    await search.fill("codex");
    await are(["Sew the sail"]);
    await ok();
  } finally {
    await own.stop();
  }
});

test("what was cut is seen in the list", limit, async () => {
  const talk = proxy.talk("harbour/deep");
  const line = "The wind backed to the north-west, and the glass fell. ";
  for (let nth = 0; nth < 6; nth += 1) await talk.say(`Watch ${nth}. ${line.repeat(120)}`);
  const { left_out, cuts } = await proxy.api(`sessions/${talk.id}`);
  assert.ok(left_out > 0 && cuts.length > 0, JSON.stringify({ left_out, cuts }));
  const { page, ok } = await open(browser, proxy);
  const cell = rowOf(page, talk.id).locator(".c-cut");
  const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(left_out);
  await reads(cell, `${short} tokens`);
  const words = { course: "new course", refitted: "fitted anew" };
  await reads(cell, cuts.map((cut) => words[cut] ?? cut).join(", "));
  const exact = `${left_out.toLocaleString("en")} tokens of the last request were not sent`;
  assert.ok((await cell.getAttribute("title")).startsWith(exact));
  await rowOf(page, talk.id).click();
  await reads(page.locator(".facts div", { hasText: "Left out" }), left_out.toLocaleString("en"));
  await ok();
});

test("names and tasks are shown as text, not as HTML", limit, async () => {
  const hostile = `harbour/<img src=x onerror="document.title='taken'"><script>document.title='taken'</script>`;
  const talk = proxy.talk(hostile, undefined, "<b>agent</b>/1");
  await talk.say("Ahoy <img src=x onerror=alert(1)>", 10);
  const { page, ok } = await open(browser, proxy);
  const name = rowOf(page, talk.id).locator(".name");
  await reads(name, "Ahoy <img src=x");
  await reads(rowOf(page, talk.id).locator(".c-model"), "<img src=x");
  await reads(page.locator(".of-program"), "<b>agent</b>");
  assert.equal(await page.locator(".rows img, .rows script, .rows b").count(), 0);
  await name.click();
  await reads(page.getByRole("heading", { level: 1 }), "Ahoy <img src=x");
  await reads(page.locator("dd"), "<script>");
  const lines = await page.locator(".hint pre").textContent();
  assert.ok(lines.startsWith(`[models."harbour/<img src=x onerror=\\"document`), lines);
  assert.equal(await page.locator("main img, main script").count(), 0);
  assert.equal(await page.title(), `Session ${talk.id.slice(0, 8)} · Plimsoll`);
  await ok();
});
