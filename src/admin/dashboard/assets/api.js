// Requests to the session API, which has the same origin as the page.

import { keepTab, key, tab } from "./settings.js";

const BASE = new URL("api/", import.meta.url);

// Timeout of an answer that is no stream, in milliseconds.
const PATIENCE = 20_000;

// An error of the API; `status` is 0 if there was no answer.
export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

// Throws `Refused`, or the abort error of `signal`.
export async function ask(path, { signal, ...options } = {}) {
  const bounds = [AbortSignal.timeout(PATIENCE), signal].filter(Boolean);
  const answer = await open(path, { ...options, signal: AbortSignal.any(bounds) });
  try {
    return await answer.json();
  } catch {
    throw new Refused(0, "unreadable", "");
  }
}

// Resolves at the head of an answer, before its body. Throws as `ask` does.
export async function open(path, { method = "GET", body, signal, ...more } = {}) {
  const headers = new Headers(more.headers);
  // A key that was entered comes before the link that opened the page.
  const [known, secret] = [key(), tab()];
  try {
    if (known) headers.set("authorization", `Bearer ${known}`);
    else if (secret && !more.headers) headers.set("x-plimsoll-tab", secret);
  } catch {
    // No header can carry these characters, so this is no key.
    throw new Refused(401, "wrong_key", "");
  }
  if (body !== undefined) headers.set("content-type", "application/json");
  let answer;
  try {
    answer = await fetch(new URL(path, BASE), {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
      referrerPolicy: "no-referrer",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, error.name === "TimeoutError" ? "timeout" : "unreachable", "");
  }
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => null);
  // The proxy was started again.
  if (told?.error?.code === "link_over" && !more.headers && tab() === secret) keepTab(null);
  throw new Refused(answer.status, told?.error?.code ?? "", told?.error?.message ?? "");
}

export const session = (id) => `sessions/${encodeURIComponent(id)}`;
