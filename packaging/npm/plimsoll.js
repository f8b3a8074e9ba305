#!/usr/bin/env node
// Runs the program from the package of this platform, and ends as it ends: with its exit code, or by its signal.
"use strict";

const { spawn } = require("node:child_process");
const { constants } = require("node:os");

const { platform, arch } = process;
// Alpine and others have no glibc.
const musl = platform === "linux" && !process.report.getReport().header.glibcVersionRuntime;
const name = `plimsoll-proxy-${platform}-${arch}${musl ? "-musl" : ""}`;

let program;
try {
  program = require.resolve(`${name}/bin/plimsoll${platform === "win32" ? ".exe" : ""}`);
} catch {
  console.error(
    `plimsoll: the package ${name} is not installed. Either there is none for this platform, or optional ` +
      "dependencies were left out (npm install --include=optional)."
  );
  process.exit(1);
}

const windows = platform === "win32";
// In a group of its own, so that Ctrl-C reaches it once, through here: a second signal would end it at once, with
// answers cut off. On Windows the console tells both.
const child = spawn(program, process.argv.slice(2), { stdio: "inherit", detached: !windows });
child.on("error", (error) => {
  console.error(`plimsoll: ${program} could not be started: ${error.message}`);
  process.exit(1);
});
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"]) {
  process.on(signal, () => windows || child.kill(signal));
}
child.on("exit", (code, signal) => {
  if (!signal) process.exit(code);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
