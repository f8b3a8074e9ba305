// Helpers of the SDK tests: the real binary, and a scripted provider.
//
// Loopback only, free ports, temporary directories, and a time limit on every wait.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, openSync, closeSync, readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import http from "node:http";
import { createRequire } from "node:module";
import net from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const target = join(here, "..", "..", "target");

// Time limit in milliseconds, for a slow machine.
export const PATIENCE = 30_000;
export const TEXT = "Fair winds, and a following sea. 顺风。";
export const USAGE = {
  prompt_tokens: 321,
  completion_tokens: 12,
  total_tokens: 333,
  prompt_tokens_details: { cached_tokens: 128 },
};

export const CITIES = ["Bergen", "Porto", "Cork", "Riga", "Genoa", "Split", "Ghent", "Vigo", "Brest", "Hull"];
export const OWN = ["add_reminder", "update_reminder", "delete_reminder", "clear_mind", "recall"];
export const RECOVERY = ["alone", "parallel", "before", "after", "clear"];

// The folder into which the test command installs.
export const installed = join(target, "clients", "node", "node_modules");

// An SDK, from beside the tests or from the folder of the test command.
export async function sdk(name = "openai") {
  try {
    return await import(name);
  } catch (error) {
    if (error.code !== "ERR_MODULE_NOT_FOUND") throw error;
    return createRequire(join(installed, "..", "index.js"))(name);
  }
}

// Polls `condition` until it is true and returns its value; fails after the time limit.
export async function waitUntil(condition, what, bound = PATIENCE) {
  const end = Date.now() + bound;
  while (Date.now() < end) {
    const value = await condition();
    if (value) return value;
    await pause(20);
  }
  throw new Error(`not within ${bound} ms: ${what}`);
}

// An OpenAI-compatible provider. The first word of the model's name chooses the answer, and `user`
// identifies the test.
export class Scripted {
  requests = [];
  closed = new Set();
  #seen = new Map();
  #made = new Map();

  async start() {
    this.server = http.createServer((request, response) => this.#serve(request, response));
    this.server.listen(0, "127.0.0.1");
    await once(this.server, "listening");
    this.port = this.server.address().port;
    return this;
  }

  async stop() {
    this.server.closeAllConnections();
    await new Promise((done) => this.server.close(done));
  }

  of(tag) {
    return this.requests.filter((one) => one.body.user === tag);
  }

  last(tag) {
    const found = this.of(tag).at(-1);
    if (!found) throw new Error(`nothing reached the provider for ${tag}`);
    return found;
  }

  // The reply of a worker that follows the proxy's notices.
  #recover(body, how) {
    const nth = this.of(body.user).length;
    const note = JSON.stringify({ content: `go on after request ${nth}` });
    const notes = [0, 1, 2].map((at) => call(`own_${nth}_${at}`, note, "add_reminder"));
    const last = JSON.stringify({ reminder_content: `go on after request ${nth}` });
    const clear = [call(`own_${nth}`, last, "clear_mind")];
    const own = { parallel: notes, clear }[how] ?? notes.slice(0, 1);
    const asked = notice(body);
    if (asked && how !== "before" && how !== "after") return { content: null, tool_calls: own };
    const made = this.#made.get(body.user) ?? 0;
    if (made >= CITIES.length) return { content: TEXT };
    this.#made.set(body.user, made + 1);
    const theirs = call(`call_${nth}`, JSON.stringify({ city: CITIES[made] }));
    if (!asked) return { content: null, tool_calls: [theirs] };
    return { content: null, tool_calls: how === "before" ? [...own, theirs] : [theirs, ...own] };
  }

  async #serve(request, response) {
    const pieces = [];
    try {
      for await (const piece of request) pieces.push(piece);
    } catch {
      return;
    }
    if (request.method !== "POST") return answer(response, 200, { object: "list", data: [] });
    const raw = Buffer.concat(pieces);
    const body = JSON.parse(raw);
    this.requests.push({ headers: request.headers, raw, body });
    response.on("close", () => {
      if (!response.writableFinished) this.closed.add(body.user);
    });
    const [name, detail] = body.model.split("-");
    const say = (message, compress = false, usage = USAGE) =>
      body.stream
        ? stream(response, body, message, compress, usage)
        : whole(response, body, message, compress, usage);
    switch (name) {
      case "text":
      case "window":
        return say({ content: TEXT });
      case "harbour":
        return say({ content: JSON.stringify({ name: "Bergen", depth: 2.5, berths: [10] }) });
      case "gzip":
        return say({ content: TEXT }, true);
      case "tools": {
        const last = body.messages.at(-1);
        if (last.role === "tool") return say({ content: `It says: ${last.content}` });
        const calls = [call("call_a", '{"city": "Bergen"}'), call("call_b", '{"city": "Porto"}')];
        return say({ content: null, tool_calls: calls });
      }
      case "recovery":
        return say(this.#recover(body, detail), false, counted(raw));
      case "status": {
        const error = { message: `scripted ${detail}`, type: "scripted_error", param: null, code: `code_${detail}` };
        return answer(response, Number(detail), { error }, detail === "429" ? { "retry-after": "7" } : {});
      }
      case "flaky": {
        const count = (this.#seen.get(body.user) ?? 0) + 1;
        this.#seen.set(body.user, count);
        if (count > 1) return say({ content: TEXT });
        const error = { message: "slow down", type: "requests", param: null, code: "rate_limit" };
        return answer(response, 429, { error }, { "retry-after-ms": "10" });
      }
      case "hang":
        return; // Nothing is ever said.
      case "drip":
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(event(body.model, [choice({ role: "assistant", content: "" })]));
        response.write(event(body.model, [choice({ content: "first" })]));
        return; // And it stays open.
      default: {
        const message = `The model \`${body.model}\` does not exist`;
        const error = { message, type: "invalid_request_error", param: null, code: "model_not_found" };
        return answer(response, 404, { error });
      }
    }
  }
}

function call(id, args, name = "weather") {
  return { id, type: "function", function: { name, arguments: args } };
}

// Four bytes are a token.
function counted(raw) {
  const prompt = Math.floor(raw.length / 4);
  return { prompt_tokens: prompt, completion_tokens: 9, total_tokens: prompt + 9 };
}

// Names of the offered tools.
export function names(body) {
  return (body.tools ?? []).map((tool) => tool.function.name);
}

// Whether the newest messages ask for reminders, and the tool is offered.
function notice(body) {
  const last = body.messages.findLastIndex((one) => one.role === "assistant");
  const calls = body.messages[last]?.tool_calls ?? [];
  const own = calls.filter((one) => OWN.includes(one.function.name)).map((one) => one.id);
  const newest = body.messages
    .slice(last + 1)
    .filter((one) => one.role === "user" || (one.role === "tool" && !own.includes(one.tool_call_id)));
  const asked = newest.some((one) => JSON.stringify(one.content).includes("add_reminder"));
  return asked && names(body).includes("add_reminder");
}

function choice(delta, finish = null) {
  return { index: 0, delta, finish_reason: finish, logprobs: null };
}

function event(model, choices, usage) {
  const body = { id: "chatcmpl-1", object: "chat.completion.chunk", created: 1, model, choices, usage };
  return `data: ${JSON.stringify(body)}\n\n`;
}

function finish(message) {
  return message.tool_calls ? "tool_calls" : "stop";
}

function answer(response, status, body, headers = {}, compress = false) {
  const json = Buffer.from(JSON.stringify(body));
  const data = compress ? gzipSync(json) : json;
  const encoding = compress ? { "content-encoding": "gzip" } : {};
  const length = { "content-type": "application/json", "content-length": data.length };
  response.writeHead(status, { ...length, ...encoding, ...headers });
  response.end(data);
}

function whole(response, body, message, compress, usage) {
  const said = { role: "assistant", ...message };
  const one = { index: 0, message: said, finish_reason: finish(message), logprobs: null };
  const head = { id: "chatcmpl-1", object: "chat.completion", created: 1, model: body.model };
  answer(response, 200, { ...head, choices: [one], usage }, { "x-scripted": "yes" }, compress);
}

function stream(response, body, message, compress, usage) {
  const deltas = [{ role: "assistant", content: "" }];
  for (const piece of (message.content ?? "").match(/.{1,7}/gsu) ?? []) deltas.push({ content: piece });
  for (const [index, one] of (message.tool_calls ?? []).entries()) {
    const { name, arguments: args } = one.function;
    deltas.push({ tool_calls: [{ ...one, index, function: { name, arguments: "" } }] });
    for (const piece of [args.slice(0, 5), args.slice(5)]) {
      deltas.push({ tool_calls: [{ index, function: { arguments: piece } }] });
    }
  }
  const events = deltas.map((delta) => event(body.model, [choice(delta)]));
  events.push(event(body.model, [choice({}, finish(message))]));
  if (body.stream_options?.include_usage) events.push(event(body.model, [], usage));
  events.push("data: [DONE]\n\n");
  const encoding = compress ? { "content-encoding": "gzip" } : {};
  response.writeHead(200, { "content-type": "text/event-stream", ...encoding });
  if (compress) response.write(gzipSync(events.join("")));
  else for (const one of events) response.write(one);
  response.end();
}

// The proxy under test: PLIMSOLL_BIN, otherwise the newest build.
function binary() {
  const places = [process.env.PLIMSOLL_BIN, join(target, "release", "plimsoll"), join(target, "debug", "plimsoll")];
  const found = places.find((place) => place && existsSync(place));
  if (!found) throw new Error("no binary to test: set PLIMSOLL_BIN, or run `cargo build` first");
  return found;
}

async function freePort() {
  const listener = net.createServer().listen(0, "127.0.0.1");
  await once(listener, "listening");
  const { port } = listener.address();
  await new Promise((done) => listener.close(done));
  return port;
}

// Starts the binary before the scripted provider; `stop` ends it and removes its files.
export async function startProxy(provider) {
  const proxy = await serve(`[server]
data_dir = "data"

[providers.scripted]
base_url = "http://127.0.0.1:${provider.port}/v1"
auth = "none"
profile = "openai"

[models."scripted/window-8k"]
context_length = 8192
optimal_max_tokens = 3600
critical_max_tokens = 5400
${RECOVERY.map((how) => `[models."scripted/recovery-${how}"]\ncontext_length = 16384\noptimal_max_tokens = 7200\ncritical_max_tokens = 10800\n`).join("\n")}`);
  return { baseURL: `${proxy.url}/v1`, stop: proxy.stop };
}

// The proxy before two strict providers (see providers.py), which run as another process. `window` is in tokens.
export async function startTwo(window = 8192) {
  const script = join(here, "providers.py");
  const providers = spawn("python3", [script, String(window)], { stdio: ["pipe", "pipe", "inherit"] });
  const gone = once(providers, "exit");
  const [line] = await once(createInterface(providers.stdout), "line");
  const { one, two } = JSON.parse(line);
  const config = `[server]
data_dir = "data"

# The client's key is forwarded, and the provider checks it.
[providers.one]
base_url = "http://127.0.0.1:${one}/v1"
auth = "client"
profile = "openai"

# The proxy has the key, and does not forward the client's.
[providers.two]
base_url = "http://127.0.0.1:${two}/v1"
api_key_env = "TWO_KEY"
profile = "template"

[models."one/model-a"]
context_length = ${window}

[models."two/model-b"]
context_length = ${window}
`;
  const proxy = await serve(config, { TWO_KEY: "two-key" });
  // The requests of a task: provider, status, error, messages, tokens, stream of each.
  const seen = async (task) => (await fetch(`http://127.0.0.1:${one}/seen?${task}`)).json();
  const stop = async () => {
    await proxy.stop();
    providers.stdin.end();
    await gone;
  };
  return { url: proxy.url, seen, stop };
}

// The proxy before a provider that speaks Messages (see messages_provider.py).
export const startMessages = (recovery) => startScripted("messages_provider.py", "anthropic", recovery);

// The proxy before a provider that speaks Responses (see responses_provider.py).
export const startResponses = (recovery) => startScripted("responses_provider.py", "openai", recovery);

async function startScripted(name, profile, recovery) {
  const script = join(here, name);
  const provider = spawn("python3", [script], { stdio: ["pipe", "pipe", "inherit"] });
  const gone = once(provider, "exit");
  const [port] = await once(createInterface(provider.stdout), "line");
  const proxy = await serve(`[server]
data_dir = "data"

[providers.scripted]
base_url = "http://127.0.0.1:${port}/v1"
auth = "client"
profile = "${profile}"
ask_models = false

[recovery]
enabled = ${recovery}

[models."plan-16k"]
context_length = 16000
optimal_max_tokens = 4000
critical_max_tokens = 12000
`);
  // The requests whose body contains the name of the task.
  const seen = async (task) => (await fetch(`http://127.0.0.1:${port}/seen?${task}`)).json();
  const stop = async () => {
    await proxy.stop();
    provider.stdin.end();
    await gone;
  };
  return { url: proxy.url, seen, stop };
}

// Starts the binary with this configuration; returns its address without a path, and a way to stop
// it.
// With `terminal`, the proxy runs on one, and what it prints there is in `printed()`.
export async function serve(text, environment = {}, { terminal = false } = {}) {
  const folder = await mkdtemp(join(tmpdir(), "plimsoll-"));
  await writeFile(join(folder, "config.toml"), text);
  // Another process may take a free port first; then it is tried with another.
  for (let attempt = 0; attempt < 5; attempt += 1) {
    const port = await freePort();
    const log = openSync(join(folder, "log"), "w");
    const run = [binary(), "serve", "--config", "config.toml", "--listen", `127.0.0.1:${port}`];
    const [program, ...args] = terminal ? ["script", "-qfec", `exec ${run.join(" ")}`, "/dev/null"] : run;
    const child = spawn(program, args, {
      cwd: folder,
      // Storing a session may be slow on a busy machine, and the next request must find it. Nobody outside is asked.
      // What is kept lies in the folder, unless the configuration says where.
      env: {
        PLIMSOLL_STORE__TIMEOUT_MS: "5000",
        PLIMSOLL_CATALOGUE__URL: "",
        STATE_DIRECTORY: folder,
        ...process.env,
        ...environment,
      },
      stdio: ["ignore", log, log],
    });
    closeSync(log);
    const gone = once(child, "exit");
    await waitUntil(async () => child.exitCode !== null || (await ready(port)), "the proxy is ready");
    if (child.exitCode === null) {
      const printed = () => readFileSync(join(folder, "log"), "utf8");
      return { url: `http://127.0.0.1:${port}`, printed, stop: () => stopProxy(child, gone, folder) };
    }
  }
  throw new Error(`the proxy did not start:\n${readFileSync(join(folder, "log"), "utf8")}`);
}

async function stopProxy(child, gone, folder) {
  child.kill("SIGTERM");
  const late = new AbortController();
  const end = pause(PATIENCE, "late", { signal: late.signal }).catch(() => "cancelled");
  const first = await Promise.race([gone, end]);
  late.abort();
  if (first === "late") {
    child.kill("SIGKILL");
    await gone;
  }
  await rm(folder, { recursive: true, force: true });
  if (first === "late") throw new Error("the proxy did not drain after SIGTERM");
}

async function ready(port) {
  try {
    const answer = await fetch(`http://127.0.0.1:${port}/readyz`, { signal: AbortSignal.timeout(5_000) });
    await answer.arrayBuffer();
    return answer.status === 200;
  } catch {
    return false;
  }
}
