// Hints: lines for the proxy's settings, to be copied, and descriptions of errors.

import { h, say } from "./dom.js";
import { explain, t } from "./words.js";

// A TOML string. Its contents come from a client, so they are escaped.
export function quoted(text) {
  const escape = (one) => `\\u${one.codePointAt(0).toString(16).padStart(4, "0")}`;
  return `"${text.replace(/["\\]/g, "\\$&").replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029]/g, escape)}"`;
}

// The section for one model of one provider.
export function lines(provider, model) {
  const name = model.startsWith(`${provider}/`) ? model : `${provider}/${model}`;
  return `[models.${quoted(name)}]\ncontext_length = 128000`;
}

// The error of a view, with a button to retry.
export function errorHint(error, retry) {
  return [
    h("strong", {}, t("error_title")),
    h("p", {}, explain(error)),
    h("button", { type: "button", class: "button", onclick: retry }, t("retry")),
  ];
}

export function windowHint(provider, model) {
  return h("div", { class: "hint" }, h("p", {}, t("hint_window")), copyable(lines(provider, model)));
}

// A text with a button that copies it; if the browser forbids that, it selects the text.
export function copyable(text) {
  const code = h("pre", { tabindex: "0", "aria-label": t("copy_text") }, h("code", {}, text));
  const button = h("button", { type: "button", class: "button small" }, t("copy"));
  const told = h("span", { role: "status", class: "quiet" });
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      say(told, t("copied"));
    } catch {
      getSelection().selectAllChildren(code);
      say(told, t("selected"));
    }
  });
  return h("div", { class: "copyable" }, code, h("div", { class: "buttons" }, button, told));
}
