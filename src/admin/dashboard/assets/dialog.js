// Dialogs: for the key, and to confirm an action.

import { h } from "./dom.js";
import { t } from "./words.js";

// Resolves to whether the user confirmed. Escape and the first button cancel.
export function confirm({ title, text, yes }) {
  return new Promise((done) => {
    const no = h(
      "button",
      { type: "button", class: "button", onclick: () => dialog.close("no") },
      t("cancel"),
    );
    const go = h(
      "button",
      { type: "button", class: "button strong", onclick: () => dialog.close("yes") },
      yes,
    );
    const dialog = shell(title, [h("p", {}, text), h("div", { class: "buttons" }, no, go)]);
    dialog.addEventListener("close", () => {
      dialog.remove();
      done(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
    no.focus();
  });
}

let asking = null;

// Resolves to a key, or to `null` without one. Concurrent calls share one dialog.
export function askForKey(wrong) {
  asking ??= new Promise((done) => {
    const input = h("input", {
      id: "key",
      type: "password",
      autocomplete: "off",
      spellcheck: "false",
      required: true,
      "aria-describedby": wrong ? "key-wrong key-help" : "key-help",
      "aria-invalid": wrong ? "true" : null,
    });
    const submit = (event) => {
      event.preventDefault();
      if (input.value.trim()) dialog.close("yes");
    };
    const form = h(
      "form",
      { onsubmit: submit },
      wrong ? h("p", { id: "key-wrong", class: "problem" }, t("key_wrong")) : null,
      h("label", { for: "key" }, t("key_label")),
      input,
      h("p", { id: "key-help", class: "quiet" }, t("key_help")),
      h(
        "div",
        { class: "buttons" },
        h("button", { type: "button", class: "button", onclick: () => dialog.close("no") }, t("cancel")),
        h("button", { class: "button strong" }, t("key_use")),
      ),
    );
    const dialog = shell(t("key_title"), [form]);
    dialog.addEventListener("close", () => {
      dialog.remove();
      asking = null;
      done(dialog.returnValue === "yes" ? input.value.trim() : null);
    });
    document.body.append(dialog);
    dialog.showModal();
    input.focus();
  });
  return asking;
}

function shell(title, children) {
  return h("dialog", { "aria-labelledby": "dialog-title" }, h("h2", { id: "dialog-title" }, title), children);
}
