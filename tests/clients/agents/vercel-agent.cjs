// An agent of the Vercel AI SDK that is set up by its environment: the prompt is its input, the answer its output.

const { openai } = require("@ai-sdk/openai");
const { generateText, jsonSchema, stepCountIs, tool } = require("ai");

const { description, lookup, parameters, readPrompt } = require("./lookup.cjs");

async function main() {
  const { text } = await generateText({
    model: openai.chat(process.argv[2]),
    prompt: readPrompt(),
    tools: { lookup: tool({ description, inputSchema: jsonSchema(parameters), execute: lookup }) },
    stopWhen: stepCountIs(100),
    maxRetries: 0,
  });
  console.log(text);
}

main();
