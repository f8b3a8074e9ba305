// A list of thousands of rows; only the visible ones are in the document.
//
// For screen readers it stays a grid: rows have their index, and the grid the full count. One row is in the
// tab order; arrow keys, Page Up and Down, Home and End reach all rows. A row with the focus keeps it and is
// never removed.

import { h } from "./dom.js";

// Rows kept beyond either edge of the viewport.
const SPARE = 6;

export class Rows {
  body = h("div", { role: "rowgroup", class: "rows" });
  // The id of the row in the tab order.
  active = null;
  #make;
  #items = [];
  #places = new Map();
  #shown = new Map();
  // The top of each row in pixels, and the bottom of the last.
  #tops = [0];
  #height = 0;

  // `make(item)` returns a row: `element`, `link` (which gets the focus), `show(item)`.
  constructor(make) {
    this.#make = make;
    this.body.addEventListener("keydown", (event) => this.#key(event));
    this.body.addEventListener("focusin", (event) => {
      const row = event.target.closest("[data-id]");
      if (row) this.#activate(row.dataset.id);
    });
  }

  // All items, in order; each has an `id`, and those that are headings `isHeading`.
  set(items) {
    this.#items = items;
    this.#places = new Map(items.map((item, at) => [item.id, at]));
    if (!this.#places.has(this.active)) this.active = items.find((item) => !item.isHeading)?.id ?? items[0]?.id ?? null;
  }

  // Draws the visible rows; with `anew` also those that were drawn before, since items changed.
  draw(anew) {
    this.#measure();
    this.body.style.height = `${this.#tops.at(-1)}px`;
    const wanted = this.#inSight();
    const focused = this.#focused();
    for (const [id, row] of this.#shown) {
      const stays = wanted.has(id) || (id === focused && this.#places.has(id));
      if (stays) continue;
      // A removed row hands its focus to the row in its place.
      row.element.remove();
      this.#shown.delete(id);
    }
    if (focused !== null && this.#places.has(focused)) wanted.add(focused);
    const places = [...wanted].map((id) => this.#places.get(id)).sort((a, b) => a - b);
    const elements = places.map((place) => this.#place(place, anew));
    this.#order(elements, focused);
    if (focused !== null && !this.#places.has(focused) && this.active) this.focus(this.active);
  }

  // Scrolls to a row and focuses it.
  focus(id) {
    const place = this.#places.get(id);
    if (place === undefined) return;
    this.#activate(id);
    this.#reveal(place);
    this.draw(false);
    this.#shown.get(id)?.link.focus({ preventScroll: true });
  }

  #measure() {
    const style = getComputedStyle(this.body);
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    const pixels = (name) => Math.max(16, Math.round((parseFloat(style.getPropertyValue(name)) || 3.5) * rem));
    const heading = pixels("--heading");
    this.#height = pixels("--row");
    let top = 0;
    this.#tops = [0, ...this.#items.map((item) => (top += item.isHeading ? heading : this.#height))];
  }

  // The row at a height in pixels; the last one below all.
  #rowAt(y) {
    let [from, to] = [0, this.#items.length];
    while (from < to) {
      const middle = (from + to) >> 1;
      if (this.#tops[middle + 1] <= y) from = middle + 1;
      else to = middle;
    }
    return from;
  }

  #inSight() {
    const top = -this.body.getBoundingClientRect().top;
    const first = Math.max(0, this.#rowAt(top) - SPARE);
    const last = Math.min(this.#items.length, this.#rowAt(top + innerHeight) + 1 + SPARE);
    const ids = this.#items.slice(Math.min(first, last), last).map((item) => item.id);
    if (this.active !== null && ids.length > 0) ids.push(this.active);
    return new Set(ids);
  }

  #place(place, anew) {
    const item = this.#items[place];
    let row = this.#shown.get(item.id);
    const fresh = !row;
    if (fresh) {
      row = this.#make(item);
      row.element.dataset.id = item.id;
      this.#shown.set(item.id, row);
    }
    if (fresh || anew) row.show(item);
    const top = this.#tops[place];
    // The first row is the header.
    row.element.setAttribute("aria-rowindex", place + 2);
    row.element.style.transform = `translateY(${top}px)`;
    row.element.style.height = `${this.#tops[place + 1] - top}px`;
    row.link.tabIndex = item.id === this.active ? 0 : -1;
    return row.element;
  }

  // Puts rows in reading order. An element loses the focus if it is moved, so the others move around the
  // focused one.
  #order(elements, focused) {
    const same =
      elements.length === this.body.childElementCount &&
      elements.every((it, at) => it === this.body.children[at]);
    if (same) return;
    const fixed = focused === null ? null : (this.#shown.get(focused)?.element ?? null);
    const middle = fixed ? elements.indexOf(fixed) : -1;
    if (middle < 0) {
      this.body.replaceChildren(...elements);
      return;
    }
    for (const child of [...this.body.children]) if (child !== fixed) child.remove();
    fixed.before(...elements.slice(0, middle));
    fixed.after(...elements.slice(middle + 1));
  }

  #focused() {
    const row = this.body.contains(document.activeElement)
      ? document.activeElement.closest("[data-id]")
      : null;
    return row?.dataset.id ?? null;
  }

  #activate(id) {
    if (this.active === id) return;
    const before = this.#shown.get(this.active);
    if (before) before.link.tabIndex = -1;
    this.active = id;
    const now = this.#shown.get(id);
    if (now) now.link.tabIndex = 0;
  }

  // Scrolls as little as needed; the sticky header must not cover the row.
  #reveal(place) {
    const { top: start } = this.body.getBoundingClientRect();
    const [top, bottom] = [start + this.#tops[place], start + this.#tops[place + 1]];
    const above = parseFloat(getComputedStyle(this.body).scrollMarginTop) || 0;
    if (top < above) scrollBy({ top: top - above, behavior: "instant" });
    else if (bottom > innerHeight) scrollBy({ top: bottom - innerHeight, behavior: "instant" });
  }

  #key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const at = this.#places.get(this.active) ?? 0;
    const page = Math.max(1, Math.floor(innerHeight / this.#height) - 3);
    const last = this.#items.length - 1;
    const to = {
      ArrowDown: at + 1,
      ArrowUp: at - 1,
      PageDown: at + page,
      PageUp: at - page,
      Home: 0,
      End: last,
    }[event.key];
    if (to === undefined || last < 0) return;
    event.preventDefault();
    this.focus(this.#items[Math.max(0, Math.min(last, to))].id);
  }
}
