// The texts of the page, without a browser: both languages have the same keys, and the page uses no
// others.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const assets = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "src", "admin", "dashboard", "assets");
const { WORDS } = await import(join(assets, "words.js"));
const { splitter } = await import(join(assets, "events.js"));
const { quoted } = await import(join(assets, "hint.js"));

const holes = (text) => [...text.matchAll(/\{(\w+)\}/g)].map((found) => found[1]).sort();

test("both languages have the same words with the same placeholders", () => {
  const { en, zh } = WORDS;
  assert.deepEqual(Object.keys(zh).sort(), Object.keys(en).sort());
  assert.ok(Object.keys(en).length > 100);
  for (const [name, text] of Object.entries(en)) {
    assert.deepEqual(holes(zh[name]), holes(text), name);
    assert.ok(zh[name].trim() && text.trim(), name);
    if (!["title", "other_language", "version"].includes(name)) assert.notEqual(zh[name], text, name);
  }
});

test("every word is used, and every used word exists", () => {
  const files = readdirSync(assets).filter((name) => name.endsWith(".js"));
  assert.ok(files.length > 10);
  const code = files.map((name) => readFileSync(join(assets, name), "utf8"));
  const text = code.join("\n").replace(/const (en|zh) = \{.*?\n\};/gs, "");
  for (const [, name] of text.matchAll(/\bt\("(\w+)"/g)) assert.ok(name in WORDS.en, name);
  // Composed keys have a prefix in the code.
  const begun = [...text.matchAll(/`(\w+_)\$\{/g)].map((found) => found[1]);
  const ended = [...text.matchAll(/`\$\{\w+\}(_\w+)`/g)].map((found) => found[1]);
  for (const name of Object.keys(WORDS.en)) {
    const whole = text.includes(`"${name}"`);
    const made = begun.some((it) => name.startsWith(it)) || ended.some((it) => name.endsWith(it));
    assert.ok(whole || made, `${name} is used nowhere`);
  }
});

test("events are the same however the stream is cut", () => {
  const stream =
    ': hello\n\nevent: session\ndata: {"id":"a\\u00e9"}\n\nevent: providers\r\ndata: [1,\r\ndata: 2]\r\n\r\ndata: no json\n\nevent: x\n\n';
  const heard = (cuts) => {
    const events = [];
    const feed = splitter((name, data) => events.push([name, data]));
    let from = 0;
    for (const to of [...cuts, stream.length]) {
      feed(stream.slice(from, to));
      from = to;
    }
    return events;
  };
  const whole = [
    ["session", { id: "aé" }],
    ["providers", [1, 2]],
    ["message", null],
  ];
  assert.deepEqual(heard([]), whole);
  for (let at = 1; at < stream.length; at += 1) assert.deepEqual(heard([at]), whole, `cut at ${at}`);
  assert.deepEqual(heard(Array.from(stream, (_, at) => at)), whole);
});

test("any name is written as a valid TOML string", () => {
  assert.equal(quoted("local/qwen"), '"local/qwen"');
  assert.equal(quoted('a"b\\c\n]\u007f'), '"a\\"b\\\\c\\u000a]\\u007f"');
});
