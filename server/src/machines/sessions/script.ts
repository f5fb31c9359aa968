/**
 * How a session's command is run so that what it changes can be kept: the line that is sent to the machine's shell, the
 * command that reads afterwards what the shell left, and what the two say changed. Pure.
 *
 * A command that is a string runs in a shell that, at its end, writes its exported variables and working directory to a file
 * in /tmp (`trap … EXIT`, so also after `exit`), with a mark where all of it is written, so that what had no room is not
 * taken for what was unset; the shell itself says on its standard error that it had none. A second command, started with the same environment, prints its own
 * environment, then the file: what differs between the two is what the command changed. A shell that is killed or replaced
 * (`exec`) leaves nothing, and then nothing changes.
 *
 * The first string of a session runs in a login shell; what the profile exports is kept like any other change, and later
 * ones run without it, because a profile would undo what was changed (`PATH`).
 *
 * A command that is a program with arguments is started in the session's directory with its variables, and leaves nothing.
 *
 * Always: what comes back is data from the machine: bounded, and dropped where it is no text.
 */
import { ARGUMENT_BYTES_MAX, ENV_BYTES_MAX } from "@flotilla/contract/limits";

/** What commands of a session leave to the next one. */
export interface SessionState {
  /** null: the machine's working directory. */
  readonly cwd: string | null;
  readonly env: Readonly<Record<string, string>>;
  readonly unsetNames: readonly string[];
  readonly hasProfile: boolean;
}

/** What one command changed. */
export interface SessionChange {
  /** null: it stayed where it was. */
  readonly cwd: string | null;
  readonly env: Readonly<Record<string, string>>;
  readonly unsetNames: readonly string[];
}

const PATH_BYTES_MAX = 4096;
/** They stand in the line that is sent, which has to leave room for the command. */
const UNSET_BYTES_MAX = 16 * 1024;
/** Two environments, and their directories. */
export const READING_BYTES_MAX = 3 * ENV_BYTES_MAX;
/** Of the shell itself: every shell sets them anew. */
const SHELL_NAMES: readonly string[] = ["PWD", "OLDPWD", "SHLVL", "_"];
/** What `unset` can name. */
const UNSETTABLE = /^[A-Za-z_][A-Za-z0-9_]*$/;

const quoted = (text: string): string => `'${text.replaceAll("'", `'"'"'`)}'`;

/** Without the shell's functions and PATH. Entries end with NUL; `PWD` is among them. */
const ENVIRONMENT = "command -p env -0";
/** Follows when all of it was written. */
const MARK = "command echo";
const NOT_WRITTEN =
  "session: what this command changed is not kept, because /tmp of the machine is full or cannot be written";

/**
 * The argv for a string. `statePath` null: nothing is to be kept of it. `hasOwnCwd`: the caller said where this one
 * command runs.
 */
export function shellArgv(
  line: string,
  state: SessionState,
  { statePath, hasOwnCwd }: { readonly statePath: string | null; readonly hasOwnCwd: boolean },
): readonly string[] {
  const names = state.unsetNames.filter((name) => UNSETTABLE.test(name));
  const steps = [
    ...(statePath === null ? [] : [`trap 'umask 077; ${writeTo(statePath)}' EXIT`]),
    ...(state.cwd === null || hasOwnCwd ? [] : [enter(state.cwd)]),
    ...(names.length === 0 ? [] : [`unset ${names.join(" ")}`]),
    // On the same line: what cannot be parsed says so with its own line numbers, and nothing runs.
    line,
  ];
  return ["sh", state.hasProfile ? "-c" : "-lc", steps.join("; ")];
}

const writeTo = (path: string): string =>
  `export PWD; ${ENVIRONMENT} 2>/dev/null >${path} && ${MARK} 2>/dev/null >>${path} || command echo "${NOT_WRITTEN}" >&2`;

/** A directory that is gone, such as one in /tmp after a restart, must not make the session useless. */
const enter = (cwd: string): string =>
  `cd ${quoted(cwd)} 2>/dev/null || echo ${quoted(`session: the directory ${cwd} is gone; this is the machine's own`)} >&2`;

/** The argv for a program: what the session does not have is taken away by `env`, where there is any such. */
export const programArgv = (argv: readonly string[], { unsetNames }: SessionState): readonly string[] =>
  unsetNames.length === 0 ? argv : ["env", ...unsetNames.flatMap((name) => ["-u", name]), ...argv];

/** Run with the environment and directory of the command itself. */
export const readingArgv = (statePath: string): readonly string[] => [
  "sh",
  "-c",
  `export PWD; ${ENVIRONMENT} && ${MARK}; cat ${statePath}; rm -f ${statePath}`,
];

/** From what the reading command printed; null when the shell did not leave all of its environment. */
export function changeIn(output: Uint8Array, state: SessionState, hasOwnCwd: boolean): SessionChange | null {
  if (output.at(-1) !== LINE_BREAK || output.at(-2) !== 0) return null;
  const entries = entriesOf(output);
  const border = entries.findIndex((entry) => entry?.startsWith("\n"));
  const first = entries[border];
  if (first === undefined || first === null || first === "\n") return null;
  const before = variablesOf(entries.slice(0, border));
  for (const name of state.unsetNames) before.delete(name);
  const after = variablesOf([first.slice(1), ...entries.slice(border + 1)]);
  // Without it the file is no environment, but another's.
  const cwd = after.get("PWD");
  if (cwd === undefined) return null;
  const isKept = (name: string): boolean => !SHELL_NAMES.includes(name);
  const env = [...after].filter(([name, value]) => isKept(name) && before.get(name) !== value);
  const begunIn = state.cwd === null || hasOwnCwd ? before.get("PWD") : state.cwd;
  const isPath = cwd.startsWith("/") && Buffer.byteLength(cwd) < PATH_BYTES_MAX;
  return {
    cwd: isPath && cwd !== begunIn ? cwd : null,
    env: Object.fromEntries(env),
    unsetNames: [...before.keys()].filter((name) => isKept(name) && UNSETTABLE.test(name) && !after.has(name)),
  };
}

const LINE_BREAK = 10;
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Entries that are no text are null. The last one has no end, so it is none. */
function entriesOf(output: Uint8Array): (string | null)[] {
  const entries: (string | null)[] = [];
  for (let at = 0, end = output.indexOf(0); end >= 0; at = end + 1, end = output.indexOf(0, at)) {
    try {
      entries.push(decoder.decode(output.subarray(at, end)));
    } catch {
      entries.push(null);
    }
  }
  return entries;
}

function variablesOf(entries: readonly (string | null)[]): Map<string, string> {
  const variables = new Map<string, string>();
  for (const entry of entries) {
    const equals = entry?.indexOf("=") ?? -1;
    if (entry !== null && equals > 0) variables.set(entry.slice(0, equals), entry.slice(equals + 1));
  }
  return variables;
}

/** The state after a change; null when it is more than the next command could be started with. */
export function applyChange(state: SessionState, change: SessionChange): SessionState | null {
  const env: Record<string, string> = { ...state.env };
  for (const name of change.unsetNames) delete env[name];
  Object.assign(env, change.env);
  const sizes = Object.entries(env).map(([name, value]) => Buffer.byteLength(name + value) + 2);
  if (sizes.some((bytes) => bytes > ARGUMENT_BYTES_MAX)) return null;
  if (sizes.reduce((sum, bytes) => sum + bytes, 0) > ENV_BYTES_MAX) return null;
  const unset = new Set([...state.unsetNames, ...change.unsetNames]);
  for (const name of Object.keys(change.env)) unset.delete(name);
  if (Buffer.byteLength([...unset].join(" ")) > UNSET_BYTES_MAX) return null;
  return { cwd: change.cwd ?? state.cwd, env, unsetNames: [...unset], hasProfile: true };
}
