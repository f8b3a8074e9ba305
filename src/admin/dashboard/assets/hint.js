// What to do about something: lines for the settings of the proxy, to be copied, and what is said of an error.

import { h, say } from "./dom.js";
import { explain, t } from "./words.js";

// A string of TOML. What stands in it came from a client.
export function quoted(text) {
  const escape = (one) => `\\u${one.codePointAt(0).toString(16).padStart(4, "0")}`;
  return `"${text.replace(/["\\]/g, "\\$&").replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029]/g, escape)}"`;
}

// The section for one model of one provider.
export function lines(provider, model) {
  const name = model.startsWith(`${provider}/`) ? model : `${provider}/${model}`;
  return `[models.${quoted(name)}]\ncontext_length = 128000`;
}

// What went wrong with a view, and the button that tries it again.
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

// A text with a button that copies it; where the browser does not let a page copy, it is selected.
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
