// The view of the settings in force: their values and sources, read only.

import { ask } from "./api.js";
import { h } from "./dom.js";
import { number } from "./format.js";
import { errorHint } from "./hint.js";
import { t } from "./words.js";

const SOURCES = ["default", "file", "environment", "flag"];

export function inForceView(app) {
  const title = h("h1", { tabindex: "-1" }, t("settings_title"));
  const problem = h("div", { class: "problem", role: "alert", hidden: true });
  const all = h("div", { class: "in-force" });
  const element = h("div", {}, h("div", { class: "heading" }, title), problem, all);
  let gone = false;

  const read = async () => {
    try {
      const { settings } = await ask("settings");
      if (gone) return;
      problem.hidden = true;
      all.replaceChildren(h("p", { class: "quiet" }, t("settings_text")), ...sections(settings));
    } catch (error) {
      if (gone) return;
      problem.replaceChildren(...errorHint(error, read));
      problem.hidden = false;
      app.failed(error);
    }
  };
  let about = app.about;
  return {
    element,
    title,
    heading: () => t("settings_title"),
    // A reload of the proxy's settings ends the stream; the view is read again when it is back.
    changed() {
      if (app.about === about) return;
      about = app.about;
      read();
    },
    enter() {
      read();
      return false;
    },
    leave() {
      gone = true;
    },
  };
}

// A table for each section, in the order of its keys.
function sections(settings) {
  const bySection = Map.groupBy(settings, ({ key }) => (key.includes(".") ? key.split(".")[0] : ""));
  return [...bySection].map(([section, rows]) => {
    const heading = `settings-${section}`;
    const name = section || t("settings_top");
    const head = ["settings_key", "settings_value", "settings_from"];
    const table = h(
      "table",
      {},
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          head.map((it) => h("th", { scope: "col" }, t(it))),
        ),
      ),
      h("tbody", {}, rows.map(row)),
    );
    return h(
      "section",
      { class: "card", "aria-labelledby": heading },
      h("h2", { id: heading }, name),
      h(
        "div",
        { class: "scroller", tabindex: "0", role: "region", "aria-label": `${name}: ${t("settings_key")}` },
        table,
      ),
    );
  });
}

function row({ key, value, hidden, from, origin }) {
  const source = SOURCES.includes(from) ? t(`source_${from}`) : from;
  const changed = from !== "default";
  return h(
    "tr",
    { class: changed ? "set" : null },
    h("th", { scope: "row" }, h("code", {}, key)),
    h("td", {}, hidden ? h("span", { class: "quiet" }, t("settings_hidden")) : shown(value)),
    h("td", {}, origin ? `${source}: ${origin}` : source),
  );
}

function shown(value) {
  if (value === null) return h("span", { class: "quiet" }, t("settings_unset"));
  if (typeof value === "boolean") return t(value ? "yes" : "no");
  if (typeof value === "number") return number(value);
  return h("code", {}, typeof value === "string" ? JSON.stringify(value) : JSON.stringify(value, null, 1));
}
