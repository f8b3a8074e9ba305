// The load line: the window as a bar, its filled part, and the two limits.

import { attribute, h, say } from "./dom.js";
import { number, share } from "./format.js";
import { t } from "./words.js";

export const LEVELS = ["critical", "caution", "healthy", "unknown"];

export const levelOf = (session) => (LEVELS.includes(session.health) ? session.health : "unknown");

// The used share of the window; `null` if either is unknown.
export const filled = (session) =>
  session.context_limit > 0 && session.prompt_tokens !== null
    ? session.prompt_tokens / session.context_limit
    : null;

const REASONS = ["not_answered", "no_usage", "provider_truncates", "window_unknown"];

// Why the level or the share of the window is unknown; `null` if both are known.
export function reasonOf(session) {
  if (REASONS.includes(session.health_reason)) return session.health_reason;
  if (filled(session) !== null) return null;
  return session.prompt_tokens === null ? "no_usage" : "window_unknown";
}

// The level as a word, with its colour.
export function pill() {
  const word = h("span");
  const element = h("span", { class: "pill" }, h("span", { class: "dot", "aria-hidden": "true" }), word);
  return {
    element,
    show(session) {
      attribute(element, "data-level", levelOf(session));
      say(word, t(`level_${levelOf(session)}`));
    },
  };
}

// What the percentages are of, and the legend of the two limits.
export const key = () =>
  h(
    "p",
    { class: "key" },
    h("span", {}, t("percent_of")),
    ["optimal", "critical"].map((name) =>
      h(
        "span",
        {},
        h("span", { class: "gauge sample", "aria-hidden": "true" }, h("span", { class: `mark ${name}` })),
        t(`chart_${name}`),
      ),
    ),
  );

// The bar, with a description in text.
export function gauge() {
  const fill = h("span", { class: "fill" });
  const optimal = h("span", { class: "mark optimal" });
  const critical = h("span", { class: "mark critical" });
  const element = h("span", { class: "gauge", role: "img" }, fill, optimal, critical);
  return {
    element,
    show(session) {
      const used = filled(session);
      const at = (tokens) => `${Math.min(100, (100 * tokens) / session.context_limit)}%`;
      attribute(element, "data-level", levelOf(session));
      attribute(element, "data-known", String(session.context_limit > 0));
      fill.style.width = used === null ? "0" : at(session.prompt_tokens);
      for (const [mark, tokens] of [
        [optimal, session.optimal_max_tokens],
        [critical, session.critical_max_tokens],
      ]) {
        mark.hidden = !(session.context_limit > 0 && tokens > 0);
        if (!mark.hidden) mark.style.left = at(tokens);
      }
      attribute(element, "aria-label", words(session, used));
    },
  };
}

function words(session, used) {
  if (used === null) return session.prompt_tokens === null ? t("gauge_no_count") : t("gauge_no_window");
  const marks =
    session.optimal_max_tokens === null || session.critical_max_tokens === null
      ? ""
      : t("gauge_marks", {
          optimal: number(session.optimal_max_tokens),
          critical: number(session.critical_max_tokens),
        });
  return t("gauge_of", { share: share(used), window: number(session.context_limit) }) + marks;
}
