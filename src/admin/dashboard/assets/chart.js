// The chart of a session: prompt tokens by generation with both limits, marks for changes of requests, and
// the cached share below.
//
// A slider selects a point by keyboard, touch or mouse and describes it in text.

import { attribute, h, svg } from "./dom.js";
import { number, short } from "./format.js";
import { t } from "./words.js";

// In pixels.
const LEFT = 52;
const RIGHT = 14;
const TOP = 22;
const TALL = 230;
const LANE = 18;
const BELOW = 52;
const AXIS = 26;

// Marks of a request. Each has a different shape, since some users cannot tell colours apart.
const SHAPES = {
  truncated: "M-4.5-4.5h9v9h-9z",
  cleared: "M-5 0L0-5L5 0L0 5z",
  folded: "M-5 4.5L0-5L5 4.5z",
  injected: "M0-5a5 5 0 1 0 .01 0z",
  course: "M-4-6v12M-4-6h9l-3 3l3 3h-9",
  summary: "M-5-4h10M-5 0h10M-5 4h6",
  refitted: "M-5-5L5 5M5-5L-5 5",
};
const OPEN = ["course", "summary", "refitted"];
const KINDS = Object.keys(SHAPES);

export const marksOf = (point) => point.marks.filter((mark) => mark in SHAPES);
export const markWords = (point) => marksOf(point).map((mark) => t(`mark_${mark}`));

// The description of one point.
export function pointWords(point) {
  const count =
    point.prompt_tokens === null ? t("reason_no_usage") : t("chart_tokens_n", { n: number(point.prompt_tokens) });
  const cached = cachedShare(point);
  const answer = point.completion_tokens ?? null;
  return [
    t("chart_generation", { n: number(point.generation) }),
    count,
    answer !== null && t("chart_answer_n", { n: number(answer) }),
    cached !== null && t("chart_cached_n", { n: number(point.cached_tokens) }),
    ...markWords(point),
  ].filter(Boolean);
}

export const cachedShare = (point) =>
  point.prompt_tokens > 0 && point.cached_tokens !== null
    ? Math.min(1, point.cached_tokens / point.prompt_tokens)
    : null;

export class Chart {
  #report = null;
  #at = null;
  #scales = null;

  constructor() {
    this.picture = h("div", { class: "picture" });
    this.tip = h("div", { class: "tip", "aria-hidden": "true", hidden: true });
    this.slider = h("input", {
      type: "range",
      min: "0",
      step: "1",
      "aria-label": t("chart_point"),
      class: "scrub",
    });
    this.legend = h("ul", { class: "legend" });
    this.none = h("p", { class: "quiet" }, t("chart_none"));
    this.frame = h("div", { class: "frame" }, this.picture, this.tip);
    this.element = h("div", { class: "chart" }, this.none, this.frame, this.slider, this.legend);
    this.slider.addEventListener("input", () => this.#select(Number(this.slider.value)));
    this.slider.addEventListener("focus", () => this.#select(Number(this.slider.value)));
    this.slider.addEventListener("blur", () => this.#select(null));
    this.frame.addEventListener("pointermove", (event) => this.#point(event));
    this.frame.addEventListener("pointerleave", () => {
      if (document.activeElement !== this.slider) this.#select(null);
    });
    this.watch = new ResizeObserver(() => this.#draw());
    this.watch.observe(this.frame);
  }

  end() {
    this.watch.disconnect();
  }

  show(report) {
    // A selection of the newest point moves on to a newer one.
    const newest = this.#report === null || Number(this.slider.value) >= this.#report.points.length - 1;
    this.#report = report;
    const last = report.points.length - 1;
    this.none.hidden = last >= 0;
    this.frame.hidden = this.slider.hidden = last < 0;
    attribute(this.slider, "max", Math.max(0, last));
    if (newest) this.slider.value = Math.max(0, last);
    if (this.#at !== null) this.#at = Number(this.slider.value);
    this.#draw();
  }

  #draw() {
    const report = this.#report;
    const width = this.frame.clientWidth;
    if (!report || report.points.length === 0 || width < 120) return;
    const lanes = KINDS.filter((kind) => report.points.some((point) => point.marks.includes(kind)));
    const scales = (this.#scales = scale(report, width, lanes));
    const picture = svg(
      "svg",
      {
        width,
        height: scales.height,
        viewBox: `0 0 ${width} ${scales.height}`,
        role: "img",
        "aria-label": summary(report),
      },
      axes(report, scales),
      lines(report, scales),
      course(report, scales),
      marks(report, scales),
      cache(report, scales),
    );
    this.cursor = svg("g", { class: "cursor" });
    picture.append(this.cursor);
    this.picture.replaceChildren(picture);
    this.legend.replaceChildren(...legend(report, lanes));
    this.#select(this.#at);
  }

  #point(event) {
    if (!this.#scales) return;
    const x = event.clientX - this.frame.getBoundingClientRect().left;
    const { points } = this.#report;
    let nearest = 0;
    points.forEach((point, at) => {
      const distance = (one) => Math.abs(this.#scales.x(one.generation) - x);
      if (distance(point) < distance(points[nearest])) nearest = at;
    });
    this.slider.value = nearest;
    this.#select(nearest);
  }

  #select(at) {
    const point = this.#report?.points[at ?? -1];
    this.#at = point ? at : null;
    const said = this.#report?.points[Number(this.slider.value)];
    if (said) attribute(this.slider, "aria-valuetext", pointWords(said).join(", "));
    this.tip.hidden = !point;
    this.cursor?.replaceChildren();
    if (!point || !this.#scales) return;
    const { x, y, height, width } = this.#scales;
    const line = svg("path", { d: `M${x(point.generation)} ${TOP}V${height - AXIS}` });
    this.cursor.append(line);
    if (point.prompt_tokens !== null) {
      this.cursor.append(svg("circle", { cx: x(point.generation), cy: y(point.prompt_tokens), r: 4.5 }));
    }
    this.tip.replaceChildren(...pointWords(point).map((words) => h("span", {}, words)));
    const half = this.tip.offsetWidth / 2;
    const left = Math.min(Math.max(x(point.generation), half), width - half);
    this.tip.style.left = `${left}px`;
  }
}

function scale(report, width, lanes) {
  const { points } = report;
  const first = points[0].generation;
  const last = points.at(-1).generation;
  const counts = points.map((point) => point.prompt_tokens ?? 0);
  const lined = report.critical_max_tokens ?? 0;
  const full = report.context_limit ?? 0;
  // The window limit is shown unless the session would be a small heap at the bottom.
  const most = Math.max(...counts, 1);
  const top = most * 1.1 > full ? Math.max(most * 1.1, full) : Math.max(full, lined * 1.05);
  const inner = width - LEFT - RIGHT;
  const middle = TOP + TALL;
  const below = middle + 10 + lanes.length * LANE;
  return {
    width,
    lanes,
    top,
    below,
    height: below + BELOW + AXIS,
    x: (generation) =>
      last === first ? LEFT + inner / 2 : LEFT + (inner * (generation - first)) / (last - first),
    y: (tokens) => middle - (TALL * Math.min(tokens, top)) / top,
    lane: (kind) => middle + 10 + LANE * (lanes.indexOf(kind) + 0.5),
    cached: (part) => below + BELOW - (BELOW - 14) * part,
  };
}

function summary({ points }) {
  const last = points.at(-1).prompt_tokens;
  return t("chart_label", {
    n: points.length,
    from: number(points[0].generation),
    to: number(points.at(-1).generation),
    last: last === null ? t("unknown") : number(last),
  });
}

// At most five round steps.
export function steps(top) {
  const rough = top / 5;
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
  const step = [1, 2, 2.5, 5, 10].map((it) => it * power).find((it) => it >= rough) ?? rough;
  return Array.from({ length: Math.floor(top / step) + 1 }, (_, at) => at * step);
}

function axes(report, scales) {
  const { width, height, x, y, top } = scales;
  const level = steps(top).map((tokens) => [
    svg("path", { class: "grid-line", d: `M${LEFT} ${y(tokens)}H${width - RIGHT}` }),
    svg("text", { x: LEFT - 8, y: y(tokens) + 4, class: "end" }, short(tokens)),
  ]);
  const { points } = report;
  const room = Math.max(2, Math.floor((width - LEFT - RIGHT) / 90));
  const every = Math.max(1, Math.ceil((points.length - 1) / room));
  const shown = points.filter(
    (_, at) => at % every === 0 && (at === 0 || points.length - 1 - at >= every / 2),
  );
  if (points.length > 1) shown.push(points.at(-1));
  const below = shown.map((point) =>
    svg("text", { x: x(point.generation), y: height - 6, class: "middle" }, number(point.generation)),
  );
  return [...level.flat(), ...below];
}

function lines(report, scales) {
  const all = [
    ["window", report.context_limit],
    ["critical", report.critical_max_tokens],
    ["optimal", report.optimal_max_tokens],
  ].filter(([, tokens]) => tokens > 0 && tokens <= scales.top);
  let free = -Infinity;
  return all.flatMap(([name, tokens]) => {
    const at = scales.y(tokens);
    const drawn = [svg("path", { class: `line ${name}`, d: `M${LEFT} ${at}H${scales.width - RIGHT}` })];
    // A label that would cover the one above goes below its line.
    const words = at - 5 > free + 12 ? at - 5 : at + 13;
    free = words;
    drawn.push(svg("text", { class: `line-name ${name}`, x: LEFT + 6, y: words }, t(`chart_${name}`)));
    return drawn;
  });
}

function course(report, scales) {
  const { x, y } = scales;
  const runs = [];
  let run = [];
  for (const point of report.points) {
    if (point.prompt_tokens === null) run = [];
    else {
      if (run.length === 0) runs.push(run);
      run.push(`${x(point.generation)} ${y(point.prompt_tokens)}`);
    }
  }
  return runs.flatMap((at) => {
    if (at.length === 1) {
      const [cx, cy] = at[0].split(" ");
      return [svg("circle", { class: "single", cx, cy, r: 4 })];
    }
    const path = `M${at.join("L")}`;
    const [from, to] = [at[0], at.at(-1)].map((place) => place.split(" ")[0]);
    return [
      svg("path", { class: "area", d: `${path}L${to} ${y(0)}L${from} ${y(0)}z` }),
      svg("path", { class: "tokens", d: path }),
    ];
  });
}

function shape(kind, x, y) {
  const open = OPEN.includes(kind) ? " open" : "";
  return svg("path", { class: `shape ${kind}${open}`, d: SHAPES[kind], transform: `translate(${x} ${y})` });
}

function marks(report, scales) {
  return report.points.flatMap((point) =>
    marksOf(point).map((kind) => shape(kind, scales.x(point.generation), scales.lane(kind))),
  );
}

function cache(report, scales) {
  const { x, cached, width } = scales;
  const zero = cached(0);
  const wide = Math.max(1.5, Math.min(10, ((width - LEFT - RIGHT) / report.points.length) * 0.6));
  const bars = report.points.flatMap((point) => {
    const part = cachedShare(point);
    if (part === null) return [];
    const at = { x: x(point.generation) - wide / 2, y: cached(part) };
    return [svg("rect", { class: "cache", ...at, width: wide, height: Math.max(0.5, zero - at.y) })];
  });
  return [
    ...bars,
    svg("path", { class: "grid-line", d: `M${LEFT} ${zero}H${width - RIGHT}` }),
    svg("text", { x: LEFT - 8, y: cached(1) + 8, class: "end" }, t("chart_all")),
    svg("text", { x: LEFT - 8, y: zero, class: "end" }, t("none")),
  ];
}

function legend(report, lanes) {
  const entry = (picture, words) => h("li", {}, picture, words);
  const swatch = (name) => h("span", { class: `swatch ${name}`, "aria-hidden": "true" });
  const sample = (kind) =>
    svg("svg", { width: 16, height: 16, viewBox: "-8 -8 16 16", "aria-hidden": "true" }, shape(kind, 0, 0));
  const count = (kind) => report.points.filter((point) => point.marks.includes(kind)).length;
  return [
    entry(swatch("tokens"), t("chart_tokens")),
    entry(swatch("cache"), t("chart_cached_part")),
    ...lanes.map((kind) => entry(sample(kind), `${t(`mark_${kind}`)} (${number(count(kind))})`)),
  ];
}
