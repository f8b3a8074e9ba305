// The list of all sessions: search, sort, and a row with the load line for each.

import { attribute, atFrame, h, say } from "./dom.js";
import { firstRequest, otherKeys } from "./empty.js";
import { number } from "./format.js";
import { LEVELS, filled, key, levelOf } from "./gauge.js";
import { headingRow, row, titleOf } from "./row.js";
import { Rows } from "./rows.js";
import { MOST } from "./sessions.js";
import { WORDS, t } from "./words.js";

const text = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
// Unknown values sort below all others.
const numeric = (of) => (a, b) => (of(a) ?? -1) - (of(b) ?? -1);
// Each in ascending order.
const COLUMNS = {
  title: (a, b) => text(titleOf(a), titleOf(b)),
  level: numeric((it) => -LEVELS.indexOf(levelOf(it))),
  share: numeric(filled),
  tokens: numeric((it) => it.prompt_tokens),
  course: numeric((it) => it.course),
  model: (a, b) => text(a.model, b.model),
  provider: (a, b) => text(a.provider, b.provider),
  cut: numeric((it) => it.left_out),
  age: numeric((it) => it.updated_s),
};
const TEXTS = ["title", "model", "provider"];

// Interval at which ages are updated, in milliseconds.
const MINUTE = 20_000;

// Search and sort order; they outlive the view, so that the user returns to the same list.
const wish = {
  query: "",
  sort: "age",
  down: true,
  levels: new Set(),
  // Whether the sessions of one client program stand together, and the programs whose sessions are folded away.
  grouped: true,
  folded: new Set(),
  scroll: 0,
  active: null,
};

// Kept in the address for reloads and bookmarks.
export function readWish(parameters) {
  const sort = parameters.get("sort");
  wish.query = parameters.get("q") ?? "";
  wish.sort = sort in COLUMNS ? sort : "age";
  wish.down = parameters.has("sort") ? parameters.get("order") === "down" : true;
  wish.grouped = parameters.get("grouped") !== "no";
  wish.levels = new Set((parameters.get("level") ?? "").split(",").filter((it) => LEVELS.includes(it)));
}

// The address of the list with its search and sort order.
export function listAddress() {
  const parameters = new URLSearchParams();
  if (wish.query) parameters.set("q", wish.query);
  if (wish.sort !== "age" || !wish.down) {
    parameters.set("sort", wish.sort);
    parameters.set("order", wish.down ? "down" : "up");
  }
  if (wish.levels.size > 0) parameters.set("level", [...wish.levels].join(","));
  if (!wish.grouped) parameters.set("grouped", "no");
  const said = parameters.toString();
  return said ? `#/?${said}` : "#/";
}

// The searched text of a session. Levels are found by their names in every language.
const hay = new WeakMap();
function words(session) {
  if (!hay.has(session)) {
    const level = levelOf(session);
    const names = Object.values(WORDS).map((one) => one[`level_${level}`]);
    const { task, program, client, model, provider, id } = session;
    hay.set(session, [task, program, client, model, provider, id, level, ...names].join("\n").toLowerCase());
  }
  return hay.get(session);
}

// The matching sessions, sorted.
export function chosen(all, { query, sort, down, levels }) {
  const asked = query.toLowerCase().split(/\s+/).filter(Boolean);
  const found = [];
  for (const one of all) {
    if (levels.size > 0 && !levels.has(levelOf(one))) continue;
    if (asked.every((word) => words(one).includes(word))) found.push(one);
  }
  const by = COLUMNS[sort];
  const sign = down ? -1 : 1;
  // Equal sessions need a fixed order, or rows would jump.
  return found.sort((a, b) => sign * by(a, b) || b.updated_s - a.updated_s || text(a.id, b.id));
}

// The sessions of each client program under a heading, the program of the first session first. Without a second
// program there are no headings.
export function group(found, { grouped, folded }) {
  const programs = Map.groupBy(found, (one) => one.program ?? "");
  if (!grouped || programs.size < 2) return found;
  return [...programs].flatMap(([program, sessions]) => {
    const isOpen = !folded.has(program);
    const heading = { id: `sessions of ${program}`, isHeading: true, program, sessions, isOpen };
    return isOpen ? [heading, ...sessions] : [heading];
  });
}

// Draws `app.sessions` into `element`; `title` gets the focus when the view opens.
export function listView(app) {
  const view = new List(app);
  return {
    element: view.element,
    title: view.title,
    heading: () => t("sessions_title"),
    changed: view.changed,
    enter: () => view.enter(),
    leave: () => view.leave(),
  };
}

class List {
  #app;
  #anew = true;
  #keys = false;
  #timer;
  #abort = new AbortController();

  constructor(app) {
    this.#app = app;
    this.rows = new Rows((item) => (item.isHeading ? headingRow((program) => this.#fold(program)) : row()));
    this.rows.active = wish.active;
    this.title = h("h1", { tabindex: "-1" }, t("sessions_title"));
    this.count = h("p", { class: "count", role: "status" });
    this.key = key();
    this.bounded = h("p", { class: "quiet", hidden: true }, t("count_bounded", { n: number(MOST) }));
    this.#tools();
    this.head = head((column) => this.#sortBy(column));
    this.grid = h(
      "div",
      { role: "grid", class: "grid", "aria-label": t("sessions_title"), "aria-describedby": "keys-help" },
      this.head.element,
      this.rows.body,
    );
    this.none = h("div", { class: "none", hidden: true }, h("p", {}, t("found_none")), this.#all());
    this.#keys = app.about?.keys ?? false;
    this.empty = firstRequest(this.#keys);
    this.others = otherKeys(app.giveKey);
    this.more = h("p", { class: "quiet", hidden: true });
    this.content = h("div", {}, this.tools, this.grid, this.none, this.bounded, this.more);
    this.element = h(
      "div",
      { class: "list" },
      h("div", { class: "heading" }, this.title, this.count, this.key),
      h("p", { id: "keys-help", class: "hidden" }, t("keys_help")),
      this.content,
      this.others.element,
      this.empty,
    );
    const draw = atFrame(() => this.#draw());
    this.ask = draw;
    this.changed = () => {
      this.#anew = true;
      draw();
    };
  }

  enter() {
    const { signal } = this.#abort;
    addEventListener("scroll", this.ask, { passive: true, signal });
    addEventListener("resize", this.ask, { signal });
    this.#timer = setInterval(this.changed, MINUTE);
    this.#draw();
    scrollTo({ top: wish.scroll, behavior: "instant" });
    this.#draw();
    // Restores the scroll position.
    if (wish.active && this.rows.active === wish.active) this.rows.focus(wish.active);
    return wish.active !== null && this.rows.active === wish.active;
  }

  leave() {
    wish.scroll = scrollY;
    const focused = this.rows.body.contains(document.activeElement);
    wish.active = focused ? this.rows.active : null;
    this.#abort.abort();
    clearInterval(this.#timer);
    this.ask.cancel();
  }

  #tools() {
    this.search = h("input", {
      id: "search",
      type: "search",
      placeholder: t("search_hint"),
      autocomplete: "off",
      spellcheck: "false",
      value: wish.query,
    });
    this.search.addEventListener("input", () => {
      wish.query = this.search.value;
      this.#wished();
    });
    const option = (name) => h("option", { value: name, selected: name === wish.sort }, t(`sort_${name}`));
    this.sort = h(
      "select",
      { id: "sort", onchange: () => this.#sortBy(this.sort.value, false) },
      Object.keys(COLUMNS).map(option),
    );
    this.turn = h("button", { type: "button", class: "button", onclick: () => this.#sortBy(wish.sort) });
    this.chips = LEVELS.map((level) => {
      const count = h("span", { class: "n" });
      const button = h(
        "button",
        { type: "button", class: "chip", "data-level": level, onclick: () => this.#only(level) },
        h("span", { class: "dot", "aria-hidden": "true" }),
        t(`level_${level}`),
        " ",
        count,
      );
      return { level, button, count };
    });
    this.byProgram = h(
      "button",
      { type: "button", class: "chip", hidden: true, onclick: () => this.#group() },
      t("by_program"),
    );
    this.tools = h(
      "div",
      { class: "tools" },
      h("div", { class: "search" }, h("label", { for: "search" }, t("search")), this.search),
      h(
        "div",
        { class: "chips", role: "group", "aria-label": t("levels") },
        this.chips.map((it) => it.button),
      ),
      this.byProgram,
      h("div", { class: "sorting" }, h("label", { for: "sort" }, t("sort_by")), this.sort, this.turn),
    );
  }

  #all() {
    const all = () => {
      wish.query = "";
      this.search.value = "";
      wish.levels.clear();
      this.#wished();
      this.search.focus();
    };
    return h("button", { type: "button", class: "button", onclick: all }, t("show_all"));
  }

  #sortBy(column, turn = true) {
    if (wish.sort === column && turn) wish.down = !wish.down;
    else wish.down = !TEXTS.includes(column);
    wish.sort = column;
    this.#wished();
  }

  #only(level) {
    if (!wish.levels.delete(level)) wish.levels.add(level);
    this.#wished();
  }

  #group() {
    wish.grouped = !wish.grouped;
    this.#wished();
  }

  #fold(program) {
    if (!wish.folded.delete(program)) wish.folded.add(program);
    this.changed();
  }

  #wished() {
    history.replaceState(null, "", listAddress());
    this.changed();
  }

  #draw() {
    const { sessions } = this.#app;
    if (this.#anew) this.#choose(sessions);
    if (!this.grid.hidden) this.rows.draw(this.#anew);
    this.#anew = false;
  }

  #choose(sessions) {
    const all = [...sessions.all.values()];
    const found = chosen(all, wish);
    const items = group(found, wish);
    this.rows.set(items);
    attribute(this.grid, "aria-rowcount", items.length + 1);
    this.byProgram.hidden = new Set(all.map((one) => one.program)).size < 2;
    attribute(this.byProgram, "aria-pressed", String(wish.grouped));
    this.grid.hidden = found.length === 0;
    this.content.hidden = this.key.hidden = all.length === 0;
    // Whether keys are needed is known shortly after the page has loaded.
    const keys = this.#app.about?.keys ?? false;
    if (keys !== this.#keys) {
      this.#keys = keys;
      const other = firstRequest(keys);
      this.empty.replaceWith(other);
      this.empty = other;
    }
    const elsewhere = sessions.others ?? 0;
    this.others.show(all.length === 0 && sessions.complete ? elsewhere : 0);
    this.more.hidden = elsewhere === 0;
    say(this.more, t("others_more", { n: number(elsewhere) }));
    this.empty.hidden = all.length > 0 || elsewhere > 0 || !sessions.complete;
    this.none.hidden = found.length > 0 || all.length === 0;
    this.bounded.hidden = !sessions.bounded;
    const n = number(found.length);
    const reading = !sessions.complete;
    if (reading) say(this.count, t("count_reading", { n: number(all.length) }));
    else
      say(
        this.count,
        found.length === all.length
          ? t("count_all", { n })
          : t("count_found", { n, all: number(all.length) }),
      );
    const counts = Map.groupBy(all, levelOf);
    for (const { level, button, count } of this.chips) {
      say(count, number(counts.get(level)?.length ?? 0));
      attribute(button, "aria-pressed", String(wish.levels.has(level)));
    }
    this.sort.value = wish.sort;
    say(this.turn, t(wish.down ? "descending" : "ascending"));
    this.head.show(wish);
  }
}

// The column headers; each sorts the list.
function head(sortBy) {
  const cells = Object.keys(COLUMNS).map((column) => {
    const button = h("button", { type: "button", onclick: () => sortBy(column) }, t(`sort_${column}`));
    return { column, element: h("div", { role: "columnheader", class: `c-${column}` }, button) };
  });
  const element = h(
    "div",
    { role: "rowgroup", class: "head" },
    h(
      "div",
      { role: "row", "aria-rowindex": "1", class: "row" },
      cells.map((it) => it.element),
    ),
  );
  return {
    element,
    show({ sort, down }) {
      for (const cell of cells) {
        const order = down ? "descending" : "ascending";
        attribute(cell.element, "aria-sort", cell.column === sort ? order : "none");
      }
    },
  };
}
