// All sessions that the user may see: read page by page, then updated by events.

import { ask } from "./api.js";

const TAKE = 200;
// The newest ones are kept; more would make the page slow.
export const MOST = 20_000;

export class Sessions {
  // By id.
  all = new Map();
  // Whether all were read, and whether there are more than shown.
  complete = false;
  bounded = false;
  // Number of sessions of other keys; `null` if unknown.
  others = null;
  #changed;
  #reading = null;

  // Calls `changed` after every change, which is often.
  constructor(changed) {
    this.#changed = changed;
  }

  // Updates one session.
  put(overview) {
    if (typeof overview?.id !== "string") return;
    const before = this.all.get(overview.id);
    if (before && overview.updated_s < before.updated_s) return;
    this.all.set(overview.id, overview);
    this.#reading?.touched.add(overview.id);
    if (this.all.size > MOST) this.#shed();
    this.#changed();
  }

  // Updates the number of sessions of other keys.
  countOthers(count) {
    this.others = count;
    this.#changed();
  }

  // Reads the list again and aborts a running read. Events that arrive meanwhile take precedence. A session in
  // neither is removed. Throws as `ask` does.
  async read() {
    this.#reading?.stop.abort();
    const reading = { stop: new AbortController(), touched: new Set() };
    this.#reading = reading;
    const seen = new Set();
    try {
      let skip = 0;
      while (skip !== null && seen.size < MOST) {
        const page = await ask(`sessions?skip=${skip}&take=${TAKE}`, { signal: reading.stop.signal });
        for (const one of page.sessions) {
          seen.add(one.id);
          if (!reading.touched.has(one.id)) this.all.set(one.id, one);
        }
        skip = page.next;
        this.others = page.of_other_keys ?? null;
        this.#changed();
      }
      this.bounded = skip !== null;
      this.complete = true;
      for (const id of this.all.keys()) if (!seen.has(id) && !reading.touched.has(id)) this.all.delete(id);
    } finally {
      if (this.#reading === reading) this.#reading = null;
      this.#changed();
    }
  }

  #shed() {
    const oldest = [...this.all.values()].sort((a, b) => a.updated_s - b.updated_s);
    for (const one of oldest.slice(0, Math.ceil(MOST / 10))) this.all.delete(one.id);
    this.bounded = true;
  }
}
