// The parts of the last request in the window: a bar, and the same as a list.

import { h } from "./dom.js";
import { number, share } from "./format.js";
import { t } from "./words.js";

const KINDS = ["system", "tools", "history", "tool_results", "images", "ours", "reserve"];

// `made` is that of a report, or `null`; `window` the tokens of the window, or `null`. Percentages are of the window.
export function madeOf(made, window) {
  if (!made) return [h("p", { class: "quiet" }, t("made_none"))];
  // Not among the parts: it counts the request as received, they count it as sent.
  const left = made.left_out;
  const parts = KINDS.map((kind) => ({ kind, tokens: made[kind] })).filter(({ tokens }) => tokens > 0);
  const free = (window ?? 0) - parts.reduce((sum, { tokens }) => sum + tokens, 0);
  if (free > 0) parts.push({ kind: "free", tokens: free });
  const piece = ({ kind, tokens }) => {
    const element = h("span", { class: `piece ${kind}` });
    element.style.flexGrow = String(tokens);
    return element;
  };
  const entry = ({ kind, tokens }) =>
    h(
      "li",
      {},
      h("span", { class: `swatch ${kind}`, "aria-hidden": "true" }),
      h("span", { class: "what" }, t(`made_${kind}`)),
      h("span", { class: "n" }, number(tokens)),
      h("span", { class: "quiet" }, window === null || kind === "left_out" ? "" : share(tokens / window)),
    );
  const all = left > 0 ? [...parts, { kind: "left_out", tokens: left }] : parts;
  const label = all
    .map(({ kind, tokens }) => t("made_label", { name: t(`made_${kind}`), n: number(tokens) }))
    .join(", ");
  return [
    h("div", { class: "made", role: "img", "aria-label": label }, parts.map(piece)),
    h("ul", { class: "shares" }, all.map(entry)),
    h("p", { class: "quiet" }, t(window === null ? "made_estimated" : "made_estimated_of")),
  ];
}
