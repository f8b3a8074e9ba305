// An agent of the OpenAI SDK that is set up by its environment: the prompt is its input, the answer its output.

const OpenAI = require("openai");

const { description, lookup, parameters, readPrompt } = require("./lookup.cjs");

async function main() {
  const client = new OpenAI({ maxRetries: 0 });
  const tools = [{ type: "function", function: { name: "lookup", description, parameters } }];
  const messages = [{ role: "user", content: readPrompt() }];
  for (;;) {
    const { choices } = await client.chat.completions.create({ model: process.argv[2], messages, tools });
    const answer = choices[0].message;
    messages.push(answer);
    if (!answer.tool_calls) return console.log(answer.content);
    for (const call of answer.tool_calls) {
      messages.push({ role: "tool", tool_call_id: call.id, content: lookup(JSON.parse(call.function.arguments)) });
    }
  }
}

main();
