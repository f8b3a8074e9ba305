// Replaces the stream of events where a tab must not hold a connection: polls the newest sessions and the
// providers.

import { ask } from "./api.js";
import { keepTrying } from "./events.js";

// Milliseconds.
const EVERY = 3_000;
const LONGEST_PAUSE = 15_000;
const NEWEST = 100;

// As `follow` of events.js.
export function poll({ heard, state }) {
  let [pause, live] = [EVERY, false];
  let before = new Map();
  return keepTrying(async (signal, isOver) => {
    try {
      const page = await ask(`sessions?take=${NEWEST}`, { signal });
      const { providers } = await ask("providers", { signal });
      if (isOver()) return pause;
      const told = new Map(page.sessions.map((session) => [session.id, JSON.stringify(session)]));
      const changed = page.sessions.filter(({ id }) => before.get(id) !== told.get(id));
      // If all sessions of a page are new, there may be more.
      if (!live) state("live", null);
      else if (changed.length === NEWEST) heard("resync", {});
      else for (const session of changed.reverse()) heard("session", session);
      heard("others", { of_other_keys: page.of_other_keys ?? null });
      heard("providers", { providers });
      [before, live, pause] = [told, true, EVERY];
    } catch (error) {
      if (isOver()) return pause;
      live = false;
      state("reconnecting", error);
      pause = Math.min(2 * pause, LONGEST_PAUSE);
    }
    return pause;
  });
}
