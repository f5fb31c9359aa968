/**
 * The commands of a fake guest: a small language without processes or a kernel.
 *
 * FAKE: for tests of the control plane. Uses the given clock; a command buffers at most one chunk of output,
 * and waits while it is not read.
 *
 *     true · false · exit N · echo [-n] TEXT · printenv [NAME] · env [-0] [-u NAME] [command] · pwd
 *     hostname · uname · cat [FILE] (input to output) · rm -f FILE
 *     lines COUNT RATE TEXT (so many lines, so many a second; 0: as fast as they are read; each # is its number)
 *     sleep SECONDS · yes [word] (64 MiB at most) · head -c N [/dev/zero] · sh -c|-lc 'a; b && c'
 *     poweroff · crash · flood (its VMM prints without end) · full-disk SECONDS (its VMM says that it has paused the guest, which runs on)
 *     out-of-memory [NAME] (the kernel has killed a process of this name)
 *     hang SECONDS (its agent answers nothing, and the command does not end)
 *     listen PORT [STATUS] (its port answers HTTP, with 200 unless said)  unlisten PORT
 *     stty size (of the terminal) · sh (each line of the input, until `exit` or its end)
 *
 * `python3 -` and other programs listed in the machine's FAKE_INTERPRETERS run their input like `sh -c`.
 *
 * In `sh`: quotes, `$NAME`, `;`, `&&`, `||`, `>&2`, `> FILE`, `>> FILE`, `2>/dev/null`, `cd` (into anything
 * but /gone…), `export`, `unset`, `trap '…' EXIT`. Files are kept until the machine ends. Any other program
 * is not found: 255, or 127 in `sh`.
 */
import { posix } from "node:path";
import { EXIT_CODE_NOT_FOUND } from "@flotilla/contract/limits";

/** The machine's files, as scripts use them. */
interface ScriptFiles {
  get(path: string): Uint8Array | undefined;
  append(path: string, data: Uint8Array): void;
  delete(path: string): void;
}

/** The environment of a command. */
export interface ScriptWorld {
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string;
  readonly hostname: string;
  readonly input: AsyncIterable<Uint8Array>;
  readonly files: ScriptFiles;
  /** The terminal's size; null without a terminal. */
  terminalSize(): { readonly cols: number; readonly rows: number } | null;
  /** Resolves when the reader accepts more; undefined if it does already. */
  write(output: "stdout" | "stderr", data: string | Uint8Array): Promise<void> | undefined;
  sleep(ms: number): Promise<void>;
  /** Its VMM says that it has paused the guest at a write, or resumed it. */
  pauseForDisk(isPaused: boolean): void;
  /** Its kernel has killed a program for lack of memory. */
  killForMemory(program: string): void;
  /** Its agent stops, and resolves when it continues. */
  hang(ms: number): Promise<void>;
  /** Its port answers every request with this status. */
  listen(port: number, status: number): void;
  unlisten(port: number): void;
  /** Ends the VM. */
  end(how: "poweroff" | "crashed" | "flooded"): void;
  /** Throws when the command has been killed. */
  checkAlive(): void;
}

const YES_BYTES_MAX = 64 * 1024 * 1024;
const CHUNK_BYTES = 64 * 1024;
const LINES_EVERY_MS = 20;
const LINES_TOGETHER = 500;

type Command = (args: readonly string[], world: ScriptWorld) => Promise<number> | number;

const COMMANDS: Readonly<Record<string, Command>> = {
  true: () => 0,
  ":": () => 0,
  false: () => 1,
  exit: ([code]) => Number(code ?? 0) & 0xff,
  pwd: (_, world) => print(world, `${world.cwd}\n`),
  hostname: (_, world) => print(world, `${world.hostname}\n`),
  uname: (_, world) => print(world, `Linux ${world.hostname} fake\n`),
  env: ([option, ...args], world) => {
    if (option === "-u") {
      const { [args[0] ?? ""]: _, ...env } = world.env;
      return run(["env", ...args.slice(1)], { ...world, env });
    }
    if (option !== undefined && option !== "-0") return runScript([option, ...args], world);
    const end = option === "-0" ? "\0" : "\n";
    const entries = Object.entries(world.env).map(([name, value]) => `${name}=${value}${end}`);
    return print(world, entries.join(""));
  },
  rm: ([, path = ""], world) => {
    world.files.delete(path);
    return 0;
  },
  echo: (args, world) =>
    args[0] === "-n" ? print(world, args.slice(1).join(" ")) : print(world, `${args.join(" ")}\n`),
  printenv: ([name], world) => {
    if (name === undefined) return run(["env"], world);
    const value = world.env[name];
    return value === undefined ? 1 : print(world, `${value}\n`);
  },
  cat: async ([path], world) => {
    const file = path === undefined ? undefined : world.files.get(path);
    if (path !== undefined && file === undefined) return fail(world, `cat: ${path}: No such file or directory`);
    if (file !== undefined) {
      await world.write("stdout", file);
      return 0;
    }
    for await (const chunk of world.input) await world.write("stdout", chunk);
    return 0;
  },
  sleep: async ([seconds], world) => {
    await world.sleep(Number(seconds ?? 0) * 1000);
    return 0;
  },
  "full-disk": async ([seconds], world) => {
    world.pauseForDisk(true);
    await world.sleep(Number(seconds ?? 0) * 1000).finally(() => world.pauseForDisk(false));
    return 0;
  },
  "out-of-memory": ([name = ""], world) => {
    world.killForMemory(name);
    return 137;
  },
  hang: async ([seconds], world) => {
    await world.hang(Number(seconds) * 1000);
    return 0;
  },
  listen: ([port, status = "200"], world) => {
    world.listen(Number(port), Number(status));
    return 0;
  },
  unlisten: ([port], world) => {
    world.unlisten(Number(port));
    return 0;
  },
  yes: async ([word = "y"], world) => {
    const chunk = Buffer.from(`${word}\n`.repeat(Math.max(1, Math.floor(CHUNK_BYTES / (word.length + 1)))));
    return await fill(world, () => chunk, YES_BYTES_MAX);
  },
  lines: async ([count = "0", rate = "0", ...parts], world) => {
    const text = `${parts.join(" ")}\n`;
    const step = Number(rate) === 0 ? LINES_TOGETHER : Math.max(1, Math.round((Number(rate) * LINES_EVERY_MS) / 1000));
    for (let first = 0; first < Number(count); first += step) {
      world.checkAlive();
      const numbers = Array.from({ length: Math.min(step, Number(count) - first) }, (_, at) => first + at);
      await world.write("stdout", numbers.map((number) => text.replaceAll("#", String(number))).join(""));
      if (Number(rate) > 0) await world.sleep(LINES_EVERY_MS);
    }
    return 0;
  },
  head: async ([option, count, path], world) => {
    const bytes = Number(count);
    if (option !== "-c" || !Number.isSafeInteger(bytes)) return fail(world, "head: expected -c N");
    if (path === "/dev/zero") return await fill(world, (left) => new Uint8Array(Math.min(left, CHUNK_BYTES)), bytes);
    let left = bytes;
    for await (const chunk of world.input) {
      await world.write("stdout", chunk.subarray(0, left));
      left -= chunk.byteLength;
      if (left <= 0) break;
    }
    return 0;
  },
  stty: (_, world) => {
    const size = world.terminalSize();
    return size === null ? fail(world, "stty: not a terminal") : print(world, `${size.rows} ${size.cols}\n`);
  },
  poweroff: (_, world) => {
    world.end("poweroff");
    return 0;
  },
  flood: (_, world) => {
    world.end("flooded");
    return 0;
  },
  crash: (_, world) => {
    world.end("crashed");
    return 0;
  },
};

/** Runs a program with its arguments; returns the exit code that the real agent would report. */
export function runScript(argv: readonly string[], world: ScriptWorld): Promise<number> | number {
  const [program = "", ...args] = argv;
  const name = program.slice(program.lastIndexOf("/") + 1);
  if (name === "sh" && (args[0] === "-c" || args[0] === "-lc"))
    return shell(args[args[1] === "--" ? 2 : 1] ?? "", world);
  if (name === "sh" && args.length === 0) return interactive(world);
  if (args[0] === "-" && world.env["FAKE_INTERPRETERS"]?.split(" ").includes(name)) return interpret(world);
  if (!Object.hasOwn(COMMANDS, name)) {
    const message = `executable file '${program}' not found in $PATH: No such file or directory\n`;
    return afterwards(world.write("stderr", message), EXIT_CODE_NOT_FOUND);
  }
  return run([name, ...args], world);
}

function run([name = "", ...args]: readonly string[], world: ScriptWorld): Promise<number> | number {
  world.checkAlive();
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  if (command === undefined) return afterwards(world.write("stderr", `sh: ${name}: not found\n`), 127);
  return command(args, world);
}

async function interpret(world: ScriptWorld): Promise<number> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of world.input) chunks.push(chunk);
  return await shell(Buffer.concat(chunks).toString(), world);
}

async function interactive(world: ScriptWorld): Promise<number> {
  let code = 0;
  let rest = "";
  for await (const chunk of world.input) {
    const typed = (rest + Buffer.from(chunk).toString()).split("\n");
    rest = typed.pop() ?? "";
    for (const line of typed) {
      code = await shell(line, world);
      if (/^exit\b/.test(line)) return code;
    }
  }
  return code;
}

interface Shell {
  readonly env: Record<string, string>;
  cwd: string;
  onExit: string;
}

async function shell(text: string, world: ScriptWorld): Promise<number> {
  const state: Shell = { env: { ...world.env }, cwd: world.cwd, onExit: "" };
  const code = await runLine(text, state, world);
  if (state.onExit !== "") await runLine(state.onExit, state, world);
  return code;
}

async function runLine(text: string, state: Shell, world: ScriptWorld): Promise<number> {
  let code = 0;
  for (const { args: written, when } of parseShell(text)) {
    if (when === "success" ? code !== 0 : when === "failure" && code === 0) continue;
    const expanded = written.map((word) => unquoted(word, state.env));
    const args = expanded.filter((word) => !/^2?>/.test(word));
    const prefix = args[0] !== "command" ? 0 : args[1] === "-p" ? 2 : 1;
    code = await runIn(args.slice(prefix), state, redirected(expanded, state, world));
    if (args[0] === "exit") return code;
  }
  return code;
}

function redirected(args: readonly string[], { env, cwd }: Shell, world: ScriptWorld): ScriptWorld {
  const target = args.findLast((word) => /^>[^&]/.test(word));
  const path = target?.replace(/^>+/, "");
  const isQuiet = args.includes("2>/dev/null");
  if (path !== undefined && !target?.startsWith(">>")) world.files.delete(path);
  return {
    ...world,
    env,
    cwd,
    write(output, data) {
      if (output === "stderr") return isQuiet ? undefined : world.write("stderr", data);
      if (args.includes(">&2")) return world.write("stderr", data);
      if (path === undefined) return world.write("stdout", data);
      world.files.append(path, Buffer.from(data));
      return undefined;
    },
  };
}

function runIn([name = "", ...args]: readonly string[], state: Shell, world: ScriptWorld): Promise<number> | number {
  switch (name) {
    case "cd":
      if (args[0]?.startsWith("/gone")) return fail(world, `sh: cd: can't cd to ${args[0]}`);
      state.cwd = posix.resolve(state.cwd, args[0] ?? "/");
      return 0;
    case "export":
      state.env["PWD"] = state.cwd;
      for (const word of args.filter((one) => one.includes("=")))
        state.env[word.slice(0, word.indexOf("="))] = word.slice(word.indexOf("=") + 1);
      return 0;
    case "unset":
      for (const word of args) delete state.env[word];
      return 0;
    case "trap":
      state.onExit = args[0] ?? "";
      return 0;
    case "umask":
      return 0;
    default:
      return run([name, ...args], world);
  }
}

interface ShellCommand {
  /** With their quotes: what they mean is known when the command's turn has come. */
  readonly args: readonly string[];
  /** Outcome of the command before. */
  readonly when: "always" | "success" | "failure";
}

const TOKEN = /\s*(?:(;|&&|\|\||\n)|((?:>>?[ \t]+)?(?:'[^']*'|"[^"]*"|[^\s;&|'"]|&(?!&)|\|(?!\|))+))/gy;

function parseShell(text: string): readonly ShellCommand[] {
  const commands: ShellCommand[] = [];
  let args: string[] = [];
  let when: ShellCommand["when"] = "always";
  const finish = (separator: string): void => {
    if (args.length > 0) commands.push({ args, when });
    args = [];
    when = separator === "&&" ? "success" : separator === "||" ? "failure" : "always";
  };
  for (const [, separator, word] of text.trim().matchAll(TOKEN)) {
    if (separator !== undefined) finish(separator);
    else if (word !== undefined) args.push(word.replace(/^(>>?)[ \t]+/, "$1"));
  }
  finish(";");
  return commands;
}

function unquoted(word: string, env: Readonly<Record<string, string>>): string {
  return word.replace(/'([^']*)'|"([^"]*)"|([^'"]+)/g, (_, literal?: string, quoted?: string, bare?: string) => {
    if (literal !== undefined) return literal;
    return (quoted ?? bare ?? "").replace(/\$\{?([A-Za-z_]\w*)\}?/g, (__, name: string) => env[name] ?? "");
  });
}

function print(world: ScriptWorld, text: string): Promise<number> | number {
  return afterwards(world.write("stdout", text), 0);
}

function fail(world: ScriptWorld, message: string): Promise<number> | number {
  return afterwards(world.write("stderr", `${message}\n`), 1);
}

function afterwards(writing: Promise<void> | undefined, code: number): Promise<number> | number {
  return writing === undefined ? code : writing.then(() => code);
}

async function fill(world: ScriptWorld, chunk: (left: number) => Uint8Array, bytes: number): Promise<number> {
  for (let left = bytes; left > 0; ) {
    world.checkAlive();
    const data = chunk(left).subarray(0, left);
    await world.write("stdout", data);
    left -= data.byteLength;
  }
  return 0;
}
