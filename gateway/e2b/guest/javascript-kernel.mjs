/**
 * Runs pieces of JavaScript one after the other in one global scope, as a notebook does. The same protocol as
 * python-kernel.py.
 */
import { createReadStream, writeSync } from "node:fs";
import { createInterface } from "node:readline";
import { PassThrough } from "node:stream";
import repl from "node:repl";
import { inspect } from "node:util";

const MARK = "\0end\0";
const tell = (type, fields = {}) => void writeSync(4, `${JSON.stringify({ type, ...fields })}\n`);
const silent = new PassThrough();
silent.resume();
const server = repl.start({ prompt: "", input: new PassThrough(), output: silent, useGlobal: true, terminal: false });

globalThis.display = (value) => tell("result", { is_main_result: false, text: inspect(value) });

/** Static imports as what a piece of code may have. */
function scriptOf(code) {
  return code.replace(/(?<=^|;)[ \t]*import\s+(?:([^"';]+?)\s+from\s+)?(["'][^"']+["'])\s*;?/gm, (_, names, from) => {
    if (names === undefined) return `await import(${from});`;
    const all = /^\*\s+as\s+(\w+)$/.exec(names);
    if (all !== null) return `var ${all[1]} = await import(${from});`;
    const [, first = "", rest = ""] = /^(\w+)?\s*,?\s*(\{[^]*\})?$/.exec(names) ?? [];
    const inner = rest.replace(/^\{|\}$/g, "").replace(/\bas\b/g, ":");
    const bound = [first === "" ? "" : `default: ${first}`, inner].filter((part) => part.trim() !== "").join(", ");
    return `var { ${bound} } = await import(${from});`;
  });
}

let refuse = () => undefined;
// Some versions of Node report here what a piece of code throws.
server._domain?.removeAllListeners("error");
server._domain?.on("error", (error) => refuse(error));

const evaluate = (code) =>
  new Promise((resolve, reject) => {
    refuse = reject;
    server.eval(scriptOf(code), server.context, "cell", (error, value) => (error ? reject(error) : resolve(value)));
  });

function tellError(error) {
  const known = error instanceof Error || typeof error?.stack === "string";
  const [name, value] = known ? [error.name, error.message] : ["Error", inspect(error)];
  tell("error", { name, value, traceback: known ? error.stack : value });
}

process.on("uncaughtException", tellError);
process.on("SIGINT", () => process.exit(130));

let count = 0;
for await (const line of createInterface({ input: createReadStream(null, { fd: 3 }) })) {
  const { code, env = {} } = JSON.parse(line);
  const before = { ...process.env };
  Object.assign(process.env, env);
  try {
    const value = await evaluate(code);
    if (value !== undefined) tell("result", { is_main_result: true, text: inspect(value) });
  } catch (error) {
    tellError(error);
  }
  for (const name of Object.keys(env)) {
    if (before[name] === undefined) delete process.env[name];
    else process.env[name] = before[name];
  }
  count += 1;
  process.stdout.write(MARK);
  process.stderr.write(MARK);
  tell("number_of_executions", { execution_count: count });
  tell("done");
}
