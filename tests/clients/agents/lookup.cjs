// The tool of the agents in Node: an entry of the log, from the folder that they run in.

const { appendFileSync, readFileSync } = require("node:fs");

exports.description = "An entry of the log";
exports.parameters = { type: "object", properties: { number: { type: "integer" } }, required: ["number"] };

exports.lookup = ({ number }) => {
  appendFileSync("asked", `${number}\n`);
  return readFileSync(`${number}.txt`, "utf8");
};

exports.readPrompt = () => readFileSync(0, "utf8");
