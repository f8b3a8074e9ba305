// Shown in place of an empty list of sessions.

import { h, say } from "./dom.js";
import { number } from "./format.js";
import { copyable } from "./hint.js";
import { t } from "./words.js";

// Hints if all sessions belong to other keys.
export function otherKeys(giveKey) {
  const text = h("p", {});
  const button = h("button", { type: "button", class: "button strong", onclick: giveKey }, t("key_give"));
  const element = h(
    "div",
    { class: "none others", hidden: true },
    h("h2", {}, t("others_title")),
    text,
    copyable("[admin]\nlocal = true"),
    h("p", { class: "buttons" }, button),
  );
  return {
    element,
    show(count) {
      element.hidden = count === 0;
      say(text, t("others_text", { n: number(count) }));
    },
  };
}

// How to send the first request.
export function firstRequest(keys) {
  const base = new URL("../v1", document.baseURI).href;
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
    copyable(curl("chat/completions", "")),
    h("p", {}, t("empty_messages")),
    copyable(curl("messages", '"max_tokens": 500, ')),
    h("p", {}, t("empty_then")),
    copyable(base),
  );
}
