// A row of the list: one session with its load line.

import { attribute, h, say } from "./dom.js";
import { age, brief, moment, number, share } from "./format.js";
import { filled, gauge, pill, reasonOf } from "./gauge.js";
import { t } from "./words.js";

// One session.
export function row() {
  const level = pill();
  const line = gauge();
  const link = h("a", { class: "name" });
  const id = h("span", { class: "id" });
  const [part, tokens, provider, course, when, notes] = Array.from({ length: 6 }, () => h("span"));
  const cell = (column, ...children) => h("div", { role: "gridcell", class: `c-${column}` }, children);
  const element = h(
    "div",
    { role: "row", class: "row" },
    cell("level", level.element),
    cell("share", line.element, part),
    cell("tokens", tokens),
    cell("model", link, id),
    cell("provider", provider),
    cell("course", course, notes),
    cell("age", when),
  );
  part.className = "part";
  notes.className = "notes";
  const show = (session) => {
    level.show(session);
    line.show(session);
    const used = filled(session);
    const why = reasonOf(session);
    say(part, why === null ? share(used) : t(`reason_${why}`));
    part.classList.toggle("why", why !== null);
    say(tokens, session.prompt_tokens === null ? "–" : number(session.prompt_tokens));
    attribute(link, "href", `#/sessions/${encodeURIComponent(session.id)}`);
    say(link, session.model);
    attribute(link, "aria-label", t("row_name", { model: session.model, id: brief(session.id) }));
    say(id, `${brief(session.id)} · ${session.format}`);
    say(provider, session.provider);
    say(course, t("course_n", { n: session.course }));
    say(notes, standing(session).join(" · "));
    say(when, age(session.updated_s));
    attribute(when, "title", moment(session.updated_s));
  };
  return { element, link, show };
}

// Running and pending actions of a session.
export function standing(session) {
  const left = session.countdown;
  return [
    left !== null && (left > 0 ? t("countdown_n", { n: left }) : t("countdown_next")),
    session.compacting && t("compacting"),
    session.clear_pending && t("clear_ordered"),
    session.compact_pending && t("compact_ordered"),
  ].filter(Boolean);
}
