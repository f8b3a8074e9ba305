// Requests to the proxy's own API, which lies beside the page.

import { key } from "./settings.js";

const BASE = new URL("api/", import.meta.url);

// How long an answer that is not a stream may take, in milliseconds.
const PATIENCE = 20_000;

// What the API refused, or that it did not answer: `status` is 0 then.
export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

// Throws `Refused`. `signal` ends the request, and only that one error is not a `Refused`.
export async function ask(path, { signal, ...options } = {}) {
  const bounds = [AbortSignal.timeout(PATIENCE), signal].filter(Boolean);
  const answer = await open(path, { ...options, signal: AbortSignal.any(bounds) });
  try {
    return await answer.json();
  } catch {
    throw new Refused(0, "unreadable", "");
  }
}

// The head of an answer, whose body is still to come. Throws as `ask` does.
export async function open(path, { method = "GET", body, signal } = {}) {
  const headers = new Headers();
  const known = key();
  try {
    if (known) headers.set("authorization", `Bearer ${known}`);
  } catch {
    // It has characters that no header can carry, and so is no key.
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
  throw new Refused(answer.status, told?.error?.code ?? "", told?.error?.message ?? "");
}

export const session = (id) => `sessions/${encodeURIComponent(id)}`;
