// Rows of the list: a session with its load line, and the heading of the sessions of one client program.

import { attribute, h, say } from "./dom.js";
import { age, brief, moment, number, share, short } from "./format.js";
import { LEVELS, filled, gauge, levelOf, pill, reasonOf } from "./gauge.js";
import { t } from "./words.js";

// What a session is called: the first words of its task, else its client's program and its id.
export function titleOf({ task, program, id }) {
  if (task) return task;
  return program ? t("title_of", { program, id: brief(id) }) : t("session_title", { id: brief(id) });
}

// One session.
export function row() {
  const level = pill();
  const line = gauge();
  // Texts of clients may be written from right to left; they must not turn what stands beside them.
  const title = h("bdi");
  const link = h("a", { class: "name" }, title);
  const [id, part, tokens, course, notes, model, provider, amount, kinds, when] = Array.from({ length: 10 }, () =>
    h("span"),
  );
  const cell = (column, ...children) => h("div", { role: "gridcell", class: `c-${column}` }, children);
  const labelled = (name) => h("span", { class: "card-only" }, t(name), " ");
  const name = labelled("sort_cut");
  const cut = cell("cut", name, amount, kinds);
  const element = h(
    "div",
    { role: "row", class: "row" },
    cell("title", link, id),
    cell("level", level.element),
    cell("share", line.element, part),
    cell("tokens", labelled("sort_tokens"), tokens),
    cell("course", course, notes),
    cell("model", model),
    cell("provider", provider),
    cut,
    cell("age", when),
  );
  part.className = "part";
  notes.className = "notes";
  id.className = "id";
  kinds.className = "kinds";
  const show = (session) => {
    level.show(session);
    line.show(session);
    const used = filled(session);
    const why = reasonOf(session);
    const called = titleOf(session);
    say(part, why === null ? share(used) : t(`reason_${why}`));
    part.classList.toggle("why", why !== null);
    say(tokens, session.prompt_tokens === null ? "–" : number(session.prompt_tokens));
    attribute(link, "href", `#/sessions/${encodeURIComponent(session.id)}`);
    say(title, called);
    attribute(link, "title", called);
    const names = { title: called, model: session.model, id: brief(session.id) };
    attribute(link, "aria-label", t("row_name", names));
    // Else the title has both.
    const whose = session.client;
    say(id, session.task ? [brief(session.id), session.program, whose].filter(Boolean).join(" · ") : whose);
    say(model, session.model);
    attribute(model, "title", session.model);
    say(provider, `${session.provider} · ${session.format}`);
    name.hidden = !(session.left_out > 0);
    attribute(cut, "data-empty", String(!session.left_out && !cutWords(session)));
    const left = session.left_out > 0 ? t("left_out_n", { n: short(session.left_out) }) : "";
    const made = cutWords(session);
    say(amount, left || (made ? "" : "–"));
    say(kinds, made);
    const exact = session.left_out > 0 && t("left_out_exact", { n: number(session.left_out) });
    attribute(cut, "title", [exact, made].filter(Boolean).join(": "));
    say(course, t("course_n", { n: session.course }));
    say(notes, standing(session, "_short").join(" · "));
    attribute(notes, "title", standing(session).join(" · "));
    say(when, age(session.updated_s));
    attribute(when, "title", moment(session.updated_s));
  };
  return { element, link, show };
}

// The heading of the sessions of one client program; a click on it folds them away.
export function headingRow(toggle) {
  const name = h("bdi");
  const sign = h("span", { class: "sign", "aria-hidden": "true" });
  const count = h("span", { class: "quiet" });
  const link = h("button", { type: "button", class: "name", onclick: () => toggle(program) }, sign, name, " ", count);
  const levels = h("span", { class: "levels" });
  const cell = h("div", { role: "gridcell", "aria-colspan": "9" }, link, levels);
  const element = h("div", { role: "row", class: "row of-program" }, cell);
  let program = "";
  const show = (heading) => {
    program = heading.program;
    say(name, program || t("program_unknown"));
    say(count, t("sessions_n", { n: number(heading.sessions.length) }));
    say(sign, heading.isOpen ? "▾" : "▸");
    attribute(link, "aria-expanded", String(heading.isOpen));
    const counts = Map.groupBy(heading.sessions, levelOf);
    const one = (level) =>
      h(
        "span",
        { "data-level": level },
        h("span", { class: "dot", "aria-hidden": "true" }),
        `${t(`level_${level}`)} ${number(counts.get(level).length)}`,
      );
    levels.replaceChildren(...LEVELS.filter((level) => counts.has(level)).map(one));
  };
  return { element, link, show };
}

const CUTS = ["truncated", "cleared", "folded", "course", "summary", "refitted"];

// What was cut since the newest course began.
const cutWords = ({ cuts }) => CUTS.filter((cut) => cuts?.includes(cut)).map((cut) => t(`cut_${cut}`)).join(", ");

// Running and pending actions of a session; with `_short`, in the few words for which a list has room.
export function standing(session, short = "") {
  const held = session.recovery_held;
  const left = session.countdown;
  return [
    held && t(`held_${held}${short}`, { n: number(session.fixed_percent ?? 0) }),
    left !== null && (left > 0 ? t("countdown_n", { n: left }) : t("countdown_next")),
    session.compacting && t("compacting"),
    session.clear_pending && t("clear_ordered"),
    session.compact_pending && t("compact_ordered"),
  ].filter(Boolean);
}
