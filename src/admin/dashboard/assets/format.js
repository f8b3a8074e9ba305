// Numbers, shares and times in the user's language.

import { language, t } from "./words.js";

const made = new Map();

function formatter(kind, options) {
  const name = `${language()} ${kind.name} ${JSON.stringify(options)}`;
  if (!made.has(name)) made.set(name, new kind(language() === "zh" ? "zh-CN" : "en", options));
  return made.get(name);
}

export const number = (value) => formatter(Intl.NumberFormat, {}).format(value);

// Short form: 12.3K.
export const short = (value) =>
  formatter(Intl.NumberFormat, { notation: "compact", maximumFractionDigits: 1 }).format(value);

export const share = (value) =>
  formatter(Intl.NumberFormat, { style: "percent", maximumFractionDigits: value < 0.1 ? 1 : 0 }).format(
    value,
  );

export const milliseconds = (value) =>
  value < 1_000
    ? t("milliseconds", { n: number(Math.round(value)) })
    : t("seconds", { n: formatter(Intl.NumberFormat, { maximumFractionDigits: 1 }).format(value / 1_000) });

const STEPS = [
  [60, "minute"],
  [3_600, "hour"],
  [86_400, "day"],
];

// How long ago; `at` in seconds since 1970. A time in the future counts as now.
export function age(at, now = Date.now() / 1_000) {
  const passed = Math.max(0, now - at);
  if (passed < 60) return t("just_now");
  const [seconds, unit] = STEPS.findLast(([least]) => passed >= least);
  const style = { numeric: "always", style: "short" };
  return formatter(Intl.RelativeTimeFormat, style).format(-Math.floor(passed / seconds), unit);
}

export const moment = (at) =>
  formatter(Intl.DateTimeFormat, { dateStyle: "medium", timeStyle: "medium" }).format(new Date(at * 1_000));

// A prefix of an id that identifies a session.
export const brief = (id) => id.slice(0, 8);
