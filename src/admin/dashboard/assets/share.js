// One stream of events for all tabs of a browser with the same key: a browser opens six connections to a
// proxy, and a stream in each tab would use them up.
//
// The tab that holds a lock leads: it reads the stream and forwards the events. When it closes, the browser
// gives the lock to another tab. A visible tab that hears nothing from the leader takes the lock, since the
// browser may have suspended it. Tabs with other keys use other names for the lock and the channel.

import { follow } from "./events.js";
import { poll } from "./poll.js";
import { key, tab } from "./settings.js";

const BASE = new URL("api/", import.meta.url).href;
const KIND = "plimsoll events ";

// Timeout of an answer of the leader, in milliseconds.
const ANSWER_WITHIN = 5_000;
// Most streams of tabs with different keys; beyond these tabs poll, to leave connections for requests.
const MOST_STREAMS = 3;

// As `follow`, shared by all tabs with this key. Browsers offer no locks over plain HTTP from other machines;
// then each tab polls.
export function followTogether(told) {
  if (!navigator.locks || !globalThis.BroadcastChannel || !globalThis.crypto?.subtle) return poll(told);
  let member = new Member(told);
  return {
    // Leaves and joins again, since the key may have changed.
    retry() {
      member.leave(true);
      member = new Member(told);
    },
    end: () => member.leave(),
  };
}

class Member {
  #told;
  #name;
  #channel = null;
  #stream = null;
  #id = Math.random();
  #state = "connecting";
  #error = null;
  #left = new AbortController();
  #release = () => {};
  #timer = null;

  constructor(told) {
    this.#told = told;
    this.#join();
  }

  // `again`: the leader must open the stream again.
  leave(again = false) {
    if (again) this.#say({ again: true });
    this.#left.abort();
    this.#stream?.end();
    this.#release();
    clearTimeout(this.#timer);
    this.#channel?.close();
    this.#channel = null;
  }

  async #join() {
    const { signal } = this.#left;
    this.#name = KIND + (await digest(`${BASE}\n${key() ?? ""}\n${tab() ?? ""}`));
    if (signal.aborted) return;
    this.#channel = new BroadcastChannel(this.#name);
    this.#channel.onmessage = ({ data }) => this.#hear(data);
    document.addEventListener("visibilitychange", () => this.#ask(), { signal });
    this.#ask();
    this.#wait({ signal });
  }

  // Leads as soon as no other tab does. `options` are those of the lock.
  async #wait(options) {
    try {
      await navigator.locks.request(this.#name, options, () => this.#lead());
    } catch (error) {
      // Else another tab took the lock, or this one has left.
      if (error.name !== "AbortError") return this.#lead();
    }
    this.#stream?.end();
    this.#stream = null;
    if (!this.#left.signal.aborted) this.#wait({ signal: this.#left.signal });
  }

  async #lead() {
    if (this.#left.signal.aborted) return;
    clearTimeout(this.#timer);
    this.#say({ here: true });
    const { held } = await navigator.locks.query().catch(() => ({ held: [] }));
    const others = held.filter(({ name }) => name.startsWith(KIND) && name !== this.#name);
    if (this.#left.signal.aborted) return;
    const begin = others.length < MOST_STREAMS ? follow : poll;
    this.#stream = begin({
      heard: (name, data) => {
        this.#say({ event: name, data });
        this.#told.heard(name, data);
      },
      state: (state, error) => this.#change(state, plain(error)),
    });
    await new Promise((done) => (this.#release = done));
  }

  #change(state, error) {
    [this.#state, this.#error] = [state, error];
    this.#say({ state, error });
    this.#told.state(state, error);
  }

  #hear(message) {
    if (this.#stream) {
      // State of a tab that does not lead.
      if (message.who) this.#say({ state: this.#state, error: this.#error, to: message.who });
      if (message.again) this.#stream.retry();
      return;
    }
    if (message.here || message.event || message.state) clearTimeout(this.#timer);
    if (message.event) this.#told.heard(message.event, message.data);
    else if (message.state && (message.to ?? this.#id) === this.#id) this.#follow(message);
  }

  #follow({ state, error, to }) {
    // The answer to another tab's question is nothing new to this tab.
    if (to && state === this.#state) return;
    this.#state = state;
    this.#told.state(state, error);
  }

  // Asks the leader for a sign of life if this tab is visible.
  #ask() {
    if (this.#stream || document.visibilityState !== "visible") return;
    clearTimeout(this.#timer);
    this.#say({ who: this.#id });
    this.#timer = setTimeout(() => this.#wait({ steal: true }), ANSWER_WITHIN);
  }

  #say(message) {
    this.#channel?.postMessage(message);
  }
}

// The part of an error that can be sent to other tabs.
const plain = (error) =>
  error && { name: error.name, status: error.status, code: error.code, message: error.message };

async function digest(text) {
  const bytes = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return Array.from(new Uint8Array(bytes), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
