// An agent of the Vercel AI SDK that is set up by its environment: the prompt is its input, the answer its output. Run from
// the folder of the log; the modules are found beside a copy of this file.

import { appendFileSync, readFileSync } from "node:fs";

import { openai } from "@ai-sdk/openai";
import { generateText, stepCountIs, tool } from "ai";
import { z } from "zod";

const lookup = tool({
  description: "An entry of the log",
  inputSchema: z.object({ number: z.number() }),
  execute({ number }) {
    appendFileSync("asked", `${number}\n`);
    return readFileSync(`${number}.txt`, "utf8");
  },
});
const { text } = await generateText({
  model: openai.chat(process.argv[2]),
  prompt: readFileSync(0, "utf8"),
  tools: { lookup },
  stopWhen: stepCountIs(100),
  maxRetries: 0,
});
console.log(text);
