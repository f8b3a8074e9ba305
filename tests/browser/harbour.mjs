// A provider for the tests of the page: reports the token counts of the test, writes reminders when
// asked, and can hold a summary back.

import { once } from "node:events";
import http from "node:http";

export class Harbour {
  // Received bodies, oldest first.
  requests = [];
  // The text of this provider's reminders.
  note = "Mind the tide tables.";
  #before = new Map();
  #holding = null;

  async start() {
    this.server = http.createServer((request, response) => this.#serve(request, response));
    this.server.listen(0, "127.0.0.1");
    await once(this.server, "listening");
    this.url = `http://127.0.0.1:${this.server.address().port}/v1`;
    return this;
  }

  async stop() {
    this.letGo();
    this.server.closeAllConnections();
    await new Promise((done) => this.server.close(done));
  }

  // Holds summaries back until `letGo`.
  hold() {
    let go;
    const gone = new Promise((done) => (go = done));
    this.#holding = { gone, go };
  }

  letGo() {
    this.#holding?.go();
    this.#holding = null;
  }

  async #serve(request, response) {
    const pieces = [];
    for await (const piece of request) pieces.push(piece);
    if (request.method !== "POST") return json(response, 200, { object: "list", data: [] });
    const raw = Buffer.concat(pieces);
    const body = JSON.parse(raw);
    this.requests.push(body);
    if (body.model === "broken")
      return json(response, 500, { error: { message: "sunk", type: "server_error" } });
    if (body.model === "scribe") {
      await this.#holding?.gone;
      return json(response, 500, { error: { message: "no ink", type: "server_error" } });
    }
    const usage = body.model.startsWith("silent") ? undefined : this.#count(body, raw);
    const message = this.#say(body);
    const finish = message.tool_calls ? "tool_calls" : "stop";
    json(response, 200, {
      id: "chatcmpl-harbour",
      object: "chat.completion",
      created: 1,
      model: body.model,
      choices: [
        { index: 0, message: { role: "assistant", ...message }, finish_reason: finish, logprobs: null },
      ],
      usage,
    });
  }

  // The last `[tokens 5000 cached 4000]` counts; without one four bytes are a token, and the prefix
  // in common with the user's previous request is cached.
  #count(body, raw) {
    const told = [...JSON.stringify(body.messages).matchAll(/\[tokens (\d+) cached (\d+)\]/g)].at(-1);
    if (told) return counted(Number(told[1]), Number(told[2]));
    const before = this.#before.get(body.user) ?? Buffer.alloc(0);
    this.#before.set(body.user, raw);
    let same = 0;
    while (same < Math.min(before.length, raw.length) && before[same] === raw[same]) same += 1;
    return counted(Math.ceil(raw.length / 4), Math.floor(same / 4));
  }

  #say(body) {
    const newest = JSON.stringify(body.messages.slice(-3));
    const tools = (body.tools ?? []).map((tool) => tool.function.name);
    const calls = [];
    if (tools.includes("add_reminder") && newest.includes("add_reminder")) {
      calls.push(call("add_reminder", { content: this.note }));
    }
    if (tools.includes("read_file"))
      calls.push(call("read_file", { path: `src/log-${this.requests.length}.rs` }));
    if (calls.length > 0) return { content: null, tool_calls: calls };
    const asked = newest.includes("<continuation_package>");
    const note = asked ? `\n<continuation_package>\n${this.note}\n</continuation_package>` : "";
    return { content: `Fair winds, and a following sea.${note}` };
  }
}

let made = 0;
function call(name, args) {
  made += 1;
  return { id: `call_${made}`, type: "function", function: { name, arguments: JSON.stringify(args) } };
}

function counted(prompt, cached) {
  const details = { cached_tokens: cached };
  return {
    prompt_tokens: prompt,
    completion_tokens: 12,
    total_tokens: prompt + 12,
    prompt_tokens_details: details,
  };
}

function json(response, status, body) {
  const data = Buffer.from(JSON.stringify(body));
  response.writeHead(status, { "content-type": "application/json", "content-length": data.length });
  response.end(data);
}
