// The page: its frame, the choice of the view, and the updates of the views.

import { ask } from "./api.js";
import { askForKey } from "./dialog.js";
import { atFrame, attribute, h, say } from "./dom.js";
import { inForceView } from "./in-force.js";
import { openLink } from "./link.js";
import { listView, readWish } from "./list.js";
import { providersView } from "./providers.js";
import { sessionView } from "./session.js";
import { followTogether } from "./share.js";
import { Sessions } from "./sessions.js";
import {
  THEMES,
  keepKey,
  keepLanguage,
  keepTheme,
  key,
  language as chosenLanguage,
  theme,
} from "./settings.js";
import { TAGS, explain, language, speak, t } from "./words.js";

// State shared by the views.
const app = {
  sessions: new Sessions(() => redraw()),
  providers: null,
  about: null,
  failed: (error) => failed(error),
  giveKey: () => giveKey(),
};

let view = null;
let state = "connecting";
let parts = null;

// Many events may come within one frame.
const redraw = atFrame(() => view?.changed());

const stream = followTogether({
  heard(name, data) {
    if (name === "session") app.sessions.put(data);
    else if (name === "providers") {
      app.providers = data?.providers ?? app.providers;
      redraw();
    } else if (name === "others") app.sessions.countOthers(data?.of_other_keys ?? null);
    else if (name === "resync") readAll();
  },
  state(now, error) {
    state = now;
    showState();
    if (now === "live") readAll();
    if (error) failed(error);
  },
});

// Reads the state of which events report changes only.
async function readAll() {
  try {
    const [about] = await Promise.all([ask("about"), app.sessions.read()]);
    app.about = about;
    hide();
    showAbout();
    redraw();
  } catch (error) {
    failed(error);
  }
}

// Shows an error; asks for a key if one is needed.
async function failed(error) {
  if (error.name === "AbortError") return;
  if (error.code === "link_over") {
    lost = explain(error);
    startAgain();
    return problem(lost);
  }
  if (error.status !== 401) {
    // Views show the errors of their requests; this one is of the whole page.
    if (error.status !== 404) problem(explain(error));
    return;
  }
  problem(explain(error), true);
  if (!refusedOnce) await giveKey();
}

// After a refusal to enter a key, only a button asks again.
let refusedOnce = false;
// Why a link opens the page no more; shown until the user has read it.
let lost = null;
let asking = false;

async function giveKey() {
  if (asking) return;
  asking = true;
  const given = await askForKey(key() !== null);
  asking = false;
  refusedOnce = given === null;
  if (given === null) return;
  keepKey(given);
  hide();
  show();
  stream.retry();
}

function forgetKey() {
  keepKey(null);
  refusedOnce = true;
  startAgain();
}

// Nothing stays of what another key, or a link, has shown.
function startAgain() {
  app.sessions.all.clear();
  app.sessions.complete = false;
  app.sessions.others = null;
  app.providers = app.about = null;
  showAbout();
  show();
  stream.retry();
}

async function useLink() {
  try {
    if (!(await openLink())) return;
    lost = null;
    startAgain();
  } catch (error) {
    failed(error);
  }
}

function problem(words, wantsKey = false) {
  const go = () => {
    lost = null;
    stream.retry();
  };
  const button = wantsKey
    ? h("button", { type: "button", class: "button", onclick: giveKey }, t("key_give"))
    : h("button", { type: "button", class: "button", onclick: go }, t(lost ? "go_on" : "try_now"));
  const said = parts.problem.querySelector("p")?.textContent;
  // Shown once, not at every attempt.
  if (said !== words) parts.problem.replaceChildren(h("p", {}, words), button);
  parts.problem.hidden = false;
}

function hide() {
  if (lost) return;
  parts.problem.hidden = true;
  parts.problem.replaceChildren();
}

// The frame of the views; built again for another language.
function frame() {
  const mark = h("img", { src: "mark.svg", alt: "", width: "28", height: "28" });
  const link = (name, href) => h("a", { href, "data-view": name }, t(`nav_${name}`));
  const made = {
    nav: [link("sessions", "#/"), link("providers", "#/providers"), link("settings", "#/settings")],
    state: h("span", { class: "words" }),
    live: h("p", { class: "live", role: "status" }),
    theme: h("button", { type: "button", class: "button small", onclick: nextTheme }),
    // Shown even if no key is needed: a client's key shows the sessions of that client.
    key: h("button", {
      type: "button",
      class: "button small",
      onclick: () => (key() === null ? giveKey() : forgetKey()),
    }),
    problem: h("div", { class: "problem page", role: "alert", hidden: true }),
    main: h("main", { id: "main", tabindex: "-1" }),
    about: h("span", {}),
  };
  made.live.append(h("span", { class: "dot", "aria-hidden": "true" }), made.state);
  const other = language() === "en" ? "zh" : "en";
  const tongue = h(
    "button",
    { type: "button", class: "button small", lang: TAGS[other], onclick: () => switchLanguage(other) },
    t("other_language"),
  );
  const toMain = (event) => {
    // The fragment of the address names the view, so it cannot name an element.
    event.preventDefault();
    made.main.focus();
  };
  document.body.replaceChildren(
    h("a", { class: "skip", href: "#main", onclick: toMain }, t("skip")),
    h(
      "header",
      {},
      h("a", { class: "brand", href: "#/" }, mark, h("span", {}, t("title"))),
      h("nav", { "aria-label": t("nav") }, made.nav),
      made.live,
      h("div", { class: "switches" }, made.key, tongue, made.theme),
    ),
    made.problem,
    made.main,
    h("footer", {}, made.about),
  );
  parts = made;
  document.documentElement.lang = TAGS[language()];
  showState();
  showTheme();
  showAbout();
}

function showState() {
  if (!parts) return;
  attribute(parts.live, "data-state", state);
  say(parts.state, t(state));
}

function showAbout() {
  const { about } = app;
  say(parts.key, t(key() === null ? "use_key" : "forget_key"));
  // Settings are shown to users who see all sessions.
  parts.nav.at(-1).hidden = !["admin", "local"].includes(about?.reader);
  const readers = {
    admin: "reader_admin",
    local: "reader_local",
    link: "reader_link",
    owner: about?.keys && "reader_owner",
  };
  const reader = about && readers[about.reader] ? t(readers[about.reader]) : "";
  say(
    parts.about,
    about ? [t("version", { version: about.version }), reader].filter(Boolean).join(" · ") : "",
  );
}

function nextTheme() {
  keepTheme(THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length]);
  showTheme();
}

function showTheme() {
  document.documentElement.dataset.theme = theme();
  say(parts.theme, t(`theme_${theme()}`));
}

function switchLanguage(to) {
  keepLanguage(to);
  speak(to);
  const { problem: said } = parts;
  frame();
  if (!said.hidden) parts.problem.hidden = true;
  show();
  parts.main.parentElement.querySelector(".switches [lang]").focus();
}

// The view of an address.
function find() {
  const [way, query = ""] = location.hash.replace(/^#/, "").split("?");
  const [, first = "", second = ""] = way.split("/");
  if (first === "sessions" && second) {
    let id = second;
    try {
      id = decodeURIComponent(second);
    } catch {
      // Then it is no id and is not found.
    }
    return { nav: "sessions", make: () => sessionView(app, id) };
  }
  if (first === "settings") return { nav: "settings", make: () => inForceView(app) };
  if (first === "providers") return { nav: "providers", make: () => providersView(app) };
  readWish(new URLSearchParams(query));
  return { nav: "sessions", make: () => listView(app) };
}

function show(moved = false) {
  view?.leave();
  const { nav, make } = find();
  view = make();
  parts.main.replaceChildren(view.element);
  for (const link of parts.nav) attribute(link, "aria-current", link.dataset.view === nav ? "page" : null);
  document.title = `${view.heading()} · ${t("title")}`;
  if (moved) scrollTo({ top: 0, behavior: "instant" });
  // Another view opened: move the focus to its start, for screen readers and keyboards.
  const placed = view.enter();
  if (moved && !placed) view.title.focus({ preventScroll: true });
}

// Views restore their scroll positions; the browser does not know their lengths.
history.scrollRestoration = "manual";
speak(chosenLanguage());
frame();
useLink();
show();
addEventListener("hashchange", () => {
  useLink();
  show(true);
});
addEventListener("online", () => stream.retry());
