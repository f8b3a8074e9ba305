// The view of one session: window use, history, stored texts, and commands.

import { ask, session as path } from "./api.js";
import { AutoSwitch } from "./auto.js";
import { Chart } from "./chart.js";
import { confirm } from "./dialog.js";
import { attribute, h, say } from "./dom.js";
import { brief, number, share } from "./format.js";
import { filled, gauge, levelOf, pill, reasonOf } from "./gauge.js";
import { errorHint, windowHint } from "./hint.js";
import { listAddress } from "./list.js";
import { madeOf } from "./made-of.js";
import { figures, table, texts } from "./report.js";
import { standing } from "./row.js";
import { t } from "./words.js";

const MINUTE = 20_000;

export function sessionView(app, id) {
  const view = new View(app, id);
  return {
    element: view.element,
    title: view.title,
    heading: () => t("session_title", { id: brief(id) }),
    changed: () => view.changed(),
    enter: () => view.enter(),
    leave: () => view.leave(),
  };
}

class View {
  #app;
  #id;
  #seen = null;
  #reading = false;
  #again = false;
  #orders = 0;
  #ordering = 0;
  #gone = false;
  #timer;
  #drawn = new Map();

  constructor(app, id) {
    this.#app = app;
    this.#id = id;
    this.task = h("bdi");
    const kicker = h("span", { class: "kicker" }, t("session_title", { id: brief(id) }));
    this.title = h("h1", { tabindex: "-1" }, kicker, " ", this.task);
    this.level = pill();
    this.reason = h("span", { class: "quiet reason", hidden: true });
    this.course = h("span", { class: "quiet" });
    this.notes = h("span", { class: "notes" });
    this.line = gauge();
    this.load = h("p", { class: "load" });
    this.limits = h("p", { class: "quiet" });
    this.problem = h("div", { class: "problem", role: "alert", hidden: true });
    this.told = h("p", { class: "quiet", role: "status" });
    this.readOnly = h("p", { class: "card quiet", hidden: true }, t("read_only"));
    this.chart = new Chart();
    this.facts = h("dl", { class: "facts" });
    this.#actions();
    const section = (name, ...children) => {
      const heading = `h-${name}`;
      return h(
        "section",
        { class: "card", "aria-labelledby": heading },
        h("h2", { id: heading }, t(`${name}_title`)),
        children,
      );
    };
    const box = (name) => (this[name] = h("div", {}));
    this.hint = h("div", {});
    this.body = h(
      "div",
      { class: "session", hidden: true },
      h(
        "section",
        { class: "card load-card", "aria-label": t("load") },
        h("div", { class: "state" }, this.level.element, this.reason, this.course, this.notes),
        this.line.element,
        this.load,
        this.limits,
        this.hint,
      ),
      this.actions,
      this.readOnly,
      section("course", this.chart.element, box("table")),
      section("made", box("made")),
      h("div", { class: "two" }, section("reminders", box("reminders")), section("prompts", box("prompts"))),
      section("summary", box("summary")),
      section("facts", this.facts),
    );
    this.element = h(
      "div",
      {},
      h(
        "p",
        { class: "back" },
        h("a", { href: listAddress() }, h("span", { "aria-hidden": "true" }, "← "), t("back")),
      ),
      h("div", { class: "heading" }, this.title),
      this.problem,
      this.body,
    );
  }

  enter() {
    this.#timer = setInterval(() => this.#overview(), MINUTE);
    const known = this.#app.sessions.all.get(this.#id);
    if (known) this.#seen = known;
    this.#entitle(known);
    this.#read();
    return false;
  }

  leave() {
    this.#gone = true;
    clearInterval(this.#timer);
    this.chart.end();
  }

  // The first words of the task, else the client's program.
  #entitle(session) {
    say(this.task, session?.task ?? session?.program ?? "");
  }

  // An event of a session; if it is this one, its report is read again.
  changed() {
    const known = this.#app.sessions.all.get(this.#id);
    // The settings may arrive after the session.
    this.#words();
    if (this.report && known === this.#seen) return;
    this.#seen = known;
    this.#read();
  }

  #actions() {
    const button = (name, act) =>
      h(
        "button",
        { type: "button", class: "button", "aria-describedby": `${name}-what`, onclick: act },
        t(name),
      );
    const order = (name, made) =>
      h("div", { class: "order" }, made, h("p", { id: `${name}-what`, class: "quiet" }, t(`${name}_what`)));
    this.compact = button("compact", () => this.#order("compact"));
    this.clear = button("clear", () => this.#clear());
    this.auto = new AutoSwitch((value) => this.#switch(value));
    this.actions = h(
      "section",
      { class: "card actions", "aria-label": t("actions") },
      order("compact", this.compact),
      order("clear", this.clear),
      this.auto.element,
      this.told,
    );
  }

  // One read at a time; a request meanwhile causes one more read. A read during a command may be older than
  // the answer of the command and would undo the change on the page.
  async #read() {
    if (this.#reading || this.#ordering) {
      this.#again = true;
      return;
    }
    this.#reading = true;
    const orders = this.#orders;
    try {
      const report = await ask(path(this.#id));
      if (orders === this.#orders) this.#show(report);
      else this.#again = true;
    } catch (error) {
      this.#failed(error);
    } finally {
      this.#reading = false;
      this.#readAgain();
    }
  }

  #readAgain() {
    if (!this.#again || this.#gone) return;
    this.#again = false;
    this.#read();
  }

  async #order(what, options = { method: "POST" }) {
    this.#orders += 1;
    this.#ordering += 1;
    const order = this.#orders;
    try {
      const report = await ask(what ? `${path(this.#id)}/${what}` : path(this.#id), options);
      if (order === this.#orders) this.#show(report);
      else this.#again = true;
    } catch (error) {
      if (this.report) this.#buttons();
      this.#failed(error);
    } finally {
      this.#ordering -= 1;
      if (!this.#ordering) this.#readAgain();
    }
  }

  async #clear() {
    const sure = await confirm({ title: t("clear_title"), text: t("clear_text"), yes: t("clear_yes") });
    if (sure) await this.#order("clear");
    this.clear.focus();
  }

  #switch(value) {
    return this.#order("", { method: "PATCH", body: { auto_compact: value } });
  }

  #failed(error) {
    if (this.#gone) return;
    this.problem.replaceChildren(...errorHint(error, () => this.#read()));
    this.problem.hidden = false;
    this.#app.failed(error);
  }

  #show(report) {
    if (this.#gone || !report) return;
    this.problem.hidden = true;
    this.body.hidden = false;
    this.report = report;
    this.actions.hidden = report.read_only;
    this.readOnly.hidden = !report.read_only;
    const why = t(report.read_only ? "read_only_why" : "hidden_why");
    this.#overview();
    this.#buttons();
    this.chart.show(report);
    const part = (name, value, make) => {
      // Unchanged parts stay, with selections and opened details in them.
      const said = JSON.stringify(value ?? null);
      if (this.#drawn.get(name) === said) return;
      this.#drawn.set(name, said);
      this[name].replaceChildren(...make(value));
    };
    part("table", report.points, table);
    part("made", [report.made_of, report.context_limit], ([made, window]) => madeOf(made, window));
    const said = (name) => ({ none: t(`${name}_none`), why });
    part("reminders", [report.reminders, report.reminder_count], ([notes, count]) =>
      texts(notes, count, said("reminders"), (note) => note.id),
    );
    part("prompts", [report.prompts, report.prompt_count], ([prompts, count]) =>
      texts(prompts, count, said("prompts"), (prompt) => t("prompt_at", { n: number(prompt.place) })),
    );
    part("summary", [report.summary, report.reminders === null], ([summary, hidden]) => {
      const list = summary === null ? (hidden ? null : []) : [{ text: summary }];
      return texts(list, null, said("summary"), () => "");
    });
    part("hint", report.context_limit === null ? [report.provider, report.model] : null, (asked) =>
      asked ? [windowHint(...asked)] : [],
    );
  }

  #overview() {
    const { report } = this;
    if (!report) return;
    const known = this.#app.sessions.all.get(this.#id);
    this.#entitle(known);
    this.level.show(report);
    this.line.show(report);
    const why = levelOf(report) === "unknown" ? reasonOf(report) : null;
    this.reason.hidden = why === null;
    if (why !== null) say(this.reason, t(`reason_${why}_long`));
    say(this.course, t("course_n", { n: report.course }));
    say(this.notes, standing(report).join(" · "));
    const tokens = report.prompt_tokens === null ? null : number(report.prompt_tokens);
    const used = filled(report);
    // Without a count, the reason beside the level is enough.
    this.load.hidden = tokens === null;
    if (tokens === null) say(this.load, "");
    else if (used === null) say(this.load, t("tokens_only", { tokens }));
    else say(this.load, t("tokens_of", { share: share(used), tokens, window: number(report.context_limit) }));
    const limit = (name, tokens) =>
      tokens !== null && t(name, { n: number(tokens), share: share(tokens / report.context_limit) });
    const limits = [
      limit("optimal_at", report.optimal_max_tokens),
      limit("critical_at", report.critical_max_tokens),
    ];
    say(this.limits, limits.filter(Boolean).join(" · "));
    this.facts.replaceChildren(...figures(report, known?.program));
  }

  #buttons() {
    const { report } = this;
    const told = [
      report.compacting && t("compact_running"),
      report.compact_pending && !report.compacting && t("compact_told"),
      report.clear_pending && t("clear_told"),
    ];
    say(this.told, told.filter(Boolean).join(" "));
    this.auto.show(report);
    this.#words();
    // The button keeps the focus and ignores a second click.
    attribute(this.compact, "aria-disabled", report.compact_pending || report.compacting ? "true" : null);
    attribute(this.clear, "aria-disabled", report.clear_pending ? "true" : null);
  }

  #words() {
    this.auto.tell(this.#app.about?.compaction);
  }
}
