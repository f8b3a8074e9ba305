// Shown in place of an empty list of sessions.

import { h, say } from "./dom.js";
import { number } from "./format.js";
import { copyable } from "./hint.js";
import { key } from "./settings.js";
import { t } from "./words.js";

// Hints if all sessions belong to other keys.
export function otherKeys(giveKey) {
  const title = h("h2", {});
  const text = h("p", {});
  const button = h("button", { type: "button", class: "button strong", onclick: giveKey }, t("key_give"));
  const element = h(
    "div",
    { class: "none others", hidden: true },
    title,
    text,
    copyable("[admin]\nlocal = true"),
    h("p", { class: "buttons" }, button),
  );
  return {
    element,
    show(count) {
      element.hidden = count === 0;
      say(title, t(key() === null ? "others_title_bare" : "others_title"));
      say(text, t("others_text", { n: number(count) }));
    },
  };
}

// How to send the first request.
export function firstRequest(keys) {
  const base = new URL("../v1", document.baseURI).href;
  const bare = base.slice(0, -"/v1".length);
  const key = keys ? ' \\\n  -H "authorization: Bearer $KEY"' : "";
  const curl = (path, fields) => {
    const messages = '"messages": [{"role": "user", "content": "How full are you?"}]';
    const body = `{"model": "simulated/plimsoll-8k", ${fields}${messages}}`;
    return `curl -i ${base}/${path}${key} \\\n  -H 'content-type: application/json' \\\n  -d '${body}'`;
  };
  return h(
    "div",
    { class: "empty", hidden: true },
    h("h2", {}, t("empty_title")),
    h("p", {}, t("empty_text")),
    h("h3", {}, t("empty_openai")),
    copyable(`export OPENAI_BASE_URL=${base}`),
    h("h3", {}, t("empty_anthropic")),
    copyable(`export ANTHROPIC_BASE_URL=${bare}`),
    h(
      "p",
      {},
      t(keys ? "empty_key_needed" : "empty_key_any"),
      " ",
      t("empty_model"),
      " ",
      h("a", { href: "#/providers" }, t("empty_models")),
    ),
    h("h3", {}, t("empty_try")),
    copyable(curl("chat/completions", "")),
    h("h3", {}, t("empty_messages")),
    copyable(curl("messages", '"max_tokens": 500, ')),
  );
}
