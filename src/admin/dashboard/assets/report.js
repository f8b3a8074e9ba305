// Texts and numbers of a session.

import { markWords } from "./chart.js";
import { h } from "./dom.js";
import { age, moment, number } from "./format.js";
import { t } from "./words.js";

// Full texts; `list` is `null` if the user may not see them. `none` is shown if there are none, `why` if
// they are hidden.
export function texts(list, count, { none, why }, name) {
  if (list === null) {
    return [
      count === null ? null : h("p", {}, t("hidden_count", { n: number(count) })),
      h("p", { class: "quiet" }, why),
    ].filter(Boolean);
  }
  if (list.length === 0) return [h("p", { class: "quiet" }, none)];
  return list.map((one) =>
    h(
      "article",
      { class: "said" },
      name(one) ? h("h3", {}, name(one)) : null,
      h("pre", { tabindex: "0", "aria-label": name(one) || t("summary_title") }, one.text),
    ),
  );
}

// The points of the chart as a table.
export function table(points) {
  if (points.length === 0) return [];
  const names = ["generation", "chart_tokens", "chart_answer", "chart_cached", "marks"];
  const head = h(
    "tr",
    {},
    names.map((name) => h("th", { scope: "col" }, t(name))),
  );
  const count = (tokens) => (tokens === null ? t("unknown") : number(tokens));
  const row = (point) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, number(point.generation)),
      h("td", {}, count(point.prompt_tokens)),
      h("td", {}, count(point.completion_tokens)),
      h("td", {}, count(point.cached_tokens)),
      h("td", {}, markWords(point).join(", ")),
    );
  const scroller = h(
    "div",
    {
      class: "scroller",
      tabindex: "0",
      role: "region",
      "aria-label": `${t("course_title")}: ${t("as_table")}`,
    },
    h("table", {}, h("thead", {}, head), h("tbody", {}, points.map(row))),
  );
  return [h("details", {}, h("summary", {}, t("as_table")), scroller)];
}

// Further values of the session. `program` is from the list, since no session is stored with its client's.
export function figures(report, program) {
  const count = (value) => (value === null ? t("unknown") : number(value));
  const billed = {
    prompt: count(report.billed_prompt_tokens),
    completion: count(report.billed_completion_tokens),
  };
  const all = [
    ["session_id", h("code", {}, report.id)],
    ["client", report.client],
    ["program", program ?? t("unknown")],
    ["model", report.model],
    ["format", report.format],
    ["provider", report.provider],
    ["last_seen", `${moment(report.updated_s)} (${age(report.updated_s)})`],
    ["fact_generations", number(report.generations)],
    ["fact_messages", number(report.messages)],
    ["fact_course", number(report.course)],
    ["fact_completion", count(report.completion_tokens)],
    ["fact_total", count(report.total_tokens)],
    ["fact_cached", count(report.cached_tokens)],
    ["fact_left_out", count(report.left_out)],
    ["fact_billed", t("fact_billed_both", billed)],
    ["fact_folded", report.folded_until === null ? t("none") : number(report.folded_until)],
    ["fact_tightened", number(report.tightened)],
    ["fact_summaries", number(report.summaries)],
    ["fact_failures", number(report.summary_failures)],
  ];
  return all.map(([name, value]) => h("div", {}, h("dt", {}, t(name)), h("dd", {}, value)));
}
