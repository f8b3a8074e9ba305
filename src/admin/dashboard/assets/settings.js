// Choices of the user, stored by the browser: language and theme permanently, the key
// and what a link was taken for in this tab only.

const KEY = "plimsoll.key";
const TAB = "plimsoll.tab";
const LANGUAGE = "plimsoll.language";
const THEME = "plimsoll.theme";

export const THEMES = ["system", "light", "dark"];

// If the browser forbids storage, they last as long as the page is open.
const kept = new Map();

function read(store, name) {
  try {
    return store().getItem(name);
  } catch {
    return kept.get(name) ?? null;
  }
}

function write(store, name, value) {
  try {
    if (value === null) store().removeItem(name);
    else store().setItem(name, value);
  } catch {
    kept.set(name, value);
  }
}

const local = () => window.localStorage;
const session = () => window.sessionStorage;

export const key = () => read(session, KEY);
export const keepKey = (value) => write(session, KEY, value);

// The secret of a tab that the link of the start opened.
export const tab = () => read(session, TAB);
export const keepTab = (value) => write(session, TAB, value);

export function language() {
  const chosen = read(local, LANGUAGE);
  if (chosen === "en" || chosen === "zh") return chosen;
  return (
    navigator.languages
      .find((one) => /^(en|zh)\b/i.test(one))
      ?.slice(0, 2)
      .toLowerCase() ?? "en"
  );
}

export const keepLanguage = (value) => write(local, LANGUAGE, value);

export function theme() {
  const chosen = read(local, THEME);
  return THEMES.includes(chosen) ? chosen : "system";
}

export const keepTheme = (value) => write(local, THEME, value);
