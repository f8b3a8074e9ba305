// The view of the providers: state, latency, and models without a known window.

import { ask } from "./api.js";
import { h } from "./dom.js";
import { milliseconds, number } from "./format.js";
import { errorHint, windowHint } from "./hint.js";
import { t } from "./words.js";

const ATTEMPTS = ["answer", "busy", "failed", "denied", "unsent"];
export const STRATEGIES = ["cost", "balanced", "information"];
const BREAKERS = { closed: "healthy", half_open: "caution", open: "critical" };

export function providersView(app) {
  const title = h("h1", { tabindex: "-1" }, t("providers_title"));
  const problem = h("div", { class: "problem", role: "alert", hidden: true });
  const list = h("div", { class: "providers" });
  const settings = h("div", {});
  const element = h("div", {}, h("div", { class: "heading" }, title), problem, list, settings);
  const drawn = new Map();
  let gone = false;

  const changed = () => {
    const { providers, about } = app;
    if (about) once(drawn, "about", about, () => settings.replaceChildren(...compaction(about)));
    if (!providers) return;
    problem.hidden = true;
    if (providers.length === 0) list.replaceChildren(h("p", {}, t("providers_none")));
    const cards = providers.map((provider) =>
      once(drawn, `p ${provider.name}`, provider, () => card(provider, drawn)),
    );
    const same = cards.length === list.children.length && cards.every((it, at) => it === list.children[at]);
    if (!same && cards.length > 0) list.replaceChildren(...cards);
  };
  const read = async () => {
    try {
      app.providers = (await ask("providers")).providers;
      if (!gone) changed();
    } catch (error) {
      if (gone) return;
      problem.replaceChildren(...errorHint(error, read));
      problem.hidden = false;
      app.failed(error);
    }
  };
  return {
    element,
    title,
    heading: () => t("providers_title"),
    changed,
    enter() {
      changed();
      read();
      return false;
    },
    leave() {
      gone = true;
    },
  };
}

// Returns what was made for the same value before, else makes it.
function once(drawn, name, value, make) {
  const said = JSON.stringify(value);
  if (drawn.get(name)?.said !== said) drawn.set(name, { said, made: make() });
  return drawn.get(name).made;
}

// Numbers change often, but focus and opened details must stay. So a card is created once, and its parts
// are replaced.
function card(provider, drawn) {
  const kept = drawn.get(`c ${provider.name}`) ?? { numbers: h("div", {}), models: h("div", {}) };
  if (!kept.element) {
    const heading = `provider-${provider.name}`;
    kept.element = h(
      "section",
      { class: "card", "aria-labelledby": heading },
      h("h2", { id: heading }, provider.name),
      kept.numbers,
      kept.models,
    );
    drawn.set(`c ${provider.name}`, kept);
  }
  kept.numbers.replaceChildren(...numbers(provider));
  once(drawn, `m ${provider.name}`, provider.models, () => kept.models.replaceChildren(...models(provider)));
  return kept.element;
}

function numbers(provider) {
  const { attempts, latency_ms: latency } = provider;
  const state = provider.breaker in BREAKERS ? provider.breaker : "closed";
  const breaker = h(
    "span",
    { class: "pill", "data-level": BREAKERS[state] },
    h("span", { class: "dot", "aria-hidden": "true" }),
    h("span", {}, t(`breaker_${state}`)),
  );
  const spent = { median: milliseconds(latency?.median ?? 0), p95: milliseconds(latency?.p95 ?? 0) };
  const time = latency
    ? [
        t("latency_of", spent),
        " ",
        h("span", { class: "quiet" }, t("latency_count", { n: number(latency.count) })),
      ]
    : t("unknown");
  const all = [
    [t("breaker"), breaker],
    // Figures of all clients need a key that opens every model.
    ...(attempts === null
      ? [[t("counts"), t("counts_hidden")]]
      : [
          ...ATTEMPTS.map((kind) => [t(`attempts_${kind}`), number(attempts[kind])]),
          [t("retries"), number(provider.retries)],
          [t("fallbacks"), number(provider.fallbacks)],
          [t("latency"), time, "latency"],
        ]),
  ];
  return [
    h(
      "dl",
      { class: "facts counts" },
      all.map(([name, value, kind]) => h("div", { class: kind }, h("dt", {}, name), h("dd", {}, value))),
    ),
  ];
}

function models(provider) {
  const all = provider.models;
  if (all.length === 0) return [h("p", { class: "quiet" }, t("models_none"))];
  const unknown = all.filter((model) => model.context_length === null);
  const counted = [t("models_n", { n: number(all.length) })];
  if (unknown.length > 0) counted.push(t("models_unknown_n", { n: number(unknown.length) }));
  const head = h(
    "tr",
    {},
    ["model", "window", "window_from"].map((name) => h("th", { scope: "col" }, t(name))),
  );
  const row = (model) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, model.id),
      h("td", {}, model.context_length === null ? t("unknown") : number(model.context_length)),
      h("td", {}, from(model.window_from)),
    );
  const scroller = h(
    "div",
    { class: "scroller", tabindex: "0", role: "region", "aria-label": `${provider.name}: ${t("models")}` },
    h(
      "table",
      {},
      h("thead", {}, head),
      h("tbody", {}, [...unknown, ...all.filter((model) => model.context_length !== null)].map(row)),
    ),
  );
  const hint = unknown.length > 0 ? windowHint(provider.name, unknown[0].id) : null;
  return [
    h("details", { open: unknown.length > 0 }, h("summary", {}, counted.join(", ")), scroller),
    hint,
  ].filter(Boolean);
}

const SOURCES = [
  "configured", "catalogue", "catalogue by name", "catalogue by prefix", "family", "learnt", "provider", "assumed",
];
const from = (source) =>
  SOURCES.includes(source) ? t(`from_${source.replaceAll(" ", "_")}`) : (source ?? t("unknown"));

// The settings of summaries, and the name of their threshold.
function compaction(about) {
  const { auto, threshold, strategy } = about.compaction;
  const named = STRATEGIES.includes(strategy);
  const words = named
    ? [
        h("strong", {}, t(`strategy_${strategy}`)),
        " ",
        h("span", { class: "quiet" }, t(`strategy_${strategy}_why`)),
      ]
    : strategy;
  const all = [
    ["compaction_auto", t(auto ? "on" : "off")],
    ["compaction_threshold", t("threshold_of", { part: number(threshold) })],
    ["compaction_strategy", words],
  ];
  const facts = h(
    "dl",
    { class: "facts" },
    all.map(([name, value]) => h("div", {}, h("dt", {}, t(name)), h("dd", {}, value))),
  );
  return [
    h(
      "section",
      { class: "card", "aria-labelledby": "h-compaction" },
      h("h2", { id: "h-compaction" }, t("compaction_title")),
      facts,
    ),
  ];
}
