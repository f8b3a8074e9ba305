// An agent of the Anthropic SDK that is set up by its environment: the prompt is its input, the answer its output.

const Anthropic = require("@anthropic-ai/sdk");

const { description, lookup, parameters, readPrompt } = require("./lookup.cjs");

async function main() {
  const client = new Anthropic({ maxRetries: 0 });
  const tools = [{ name: "lookup", description, input_schema: parameters }];
  const messages = [{ role: "user", content: readPrompt() }];
  for (;;) {
    const { content } = await client.messages.create({ model: process.argv[2], max_tokens: 500, messages, tools });
    messages.push({ role: "assistant", content });
    const calls = content.filter((block) => block.type === "tool_use");
    if (calls.length === 0) return console.log(content.at(-1).text);
    const result = (call) => ({ type: "tool_result", tool_use_id: call.id, content: lookup(call.input) });
    messages.push({ role: "user", content: calls.map(result) });
  }
}

main();
