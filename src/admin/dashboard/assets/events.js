// The proxy's stream of events, read with `fetch`, since an EventSource cannot send a key.
//
// A stream that ends or falls silent is opened again without limit, after a growing pause.

import { open } from "./api.js";

// Milliseconds. A comment comes every three seconds, so a long silence means a dead connection.
const SILENCE = 40_000;
const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 15_000;

// Calls `heard(name, data)` for each event and `state("live" | "reconnecting", error)` as it changes; `live`
// comes before the first event of every connection. Returns functions to stop and to retry at once.
export function follow({ heard, state }) {
  let pause = FIRST_PAUSE;
  return keepTrying(async (signal, isOver) => {
    let error = null;
    try {
      await read(signal, heard, () => {
        pause = FIRST_PAUSE;
        state("live", null);
      });
    } catch (thrown) {
      error = thrown;
    }
    if (!isOver()) state("reconnecting", error);
    const now = pause;
    pause = Math.min(2 * pause, LONGEST_PAUSE);
    // Random, so that many pages do not reconnect at the same moment.
    return now * (0.75 + Math.random() / 2);
  });
}

// Calls `turn(signal, isOver)` repeatedly, each time after the milliseconds that the last call returned.
// Returns functions to stop and to retry at once.
export function keepTrying(turn) {
  let stop = new AbortController();
  let wake = () => {};
  let ended = false;

  const run = async () => {
    while (!ended) {
      const pause = await turn(stop.signal, () => ended);
      if (ended) return;
      await new Promise((done) => {
        wake = done;
        setTimeout(done, pause);
      });
    }
  };
  run();
  return {
    retry() {
      stop.abort();
      stop = new AbortController();
      wake();
    },
    end() {
      ended = true;
      stop.abort();
      wake();
    },
  };
}

async function read(stop, heard, opened) {
  const silence = new AbortController();
  const signal = AbortSignal.any([stop, silence.signal]);
  let timer = setTimeout(() => silence.abort(), SILENCE);
  try {
    const answer = await open("events", { signal });
    opened();
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const feed = splitter(heard);
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE);
      feed(value);
    }
  } finally {
    clearTimeout(timer);
  }
}

// Parses chunks of a stream and reports each complete event. Data that is not JSON is skipped.
export function splitter(heard) {
  let rest = "";
  let name = "";
  let data = [];
  const line = (text) => {
    if (text === "") {
      if (data.length > 0) tell(heard, name || "message", data.join("\n"));
      name = "";
      data = [];
      return;
    }
    const [, field, value] = /^([^:]*):? ?(.*)$/s.exec(text);
    if (field === "event") name = value;
    else if (field === "data") data.push(value);
  };
  return (piece) => {
    rest += piece;
    const lines = rest.split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop();
    lines.forEach(line);
  };
}

function tell(heard, name, text) {
  let data;
  try {
    data = JSON.parse(text);
  } catch {
    data = null;
  }
  heard(name, data);
}
