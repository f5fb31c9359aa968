/**
 * The scripts with which a session's command runs and its changes are read: the line for the machine's shell,
 * the command that then reads what the shell left, and the difference of the two. Pure.
 *
 * A command that is a string runs in a shell. At its end the shell writes its exported variables and working
 * directory to a file in /tmp (`trap … EXIT`, so also after `exit`), with a mark after the last of them.
 * Without the mark the file is incomplete, because the disk was full, and is not used; the shell reports that
 * on its standard error. A second command, started with the same environment, prints its own environment and
 * then the file: the difference is what the first command changed. A shell that is killed or replaced
 * (`exec`) leaves nothing, and then nothing changes.
 *
 * The first string of a session runs in a login shell; what the profile exports is kept like any other
 * change, and later ones run without it, because a profile would undo what was changed (`PATH`).
 *
 * A command that is a program with arguments is started in the session's directory with its variables, and
 * leaves nothing.
 *
 * Always: the result is data from the machine: its size is bounded, and entries that are not text are
 * dropped.
 */
import { ARGUMENT_BYTES_MAX, ENV_BYTES_MAX, VARIABLES_MAX } from "@flotilla/contract/limits";
import { shellCommand } from "../exec/request.ts";

/** The state that commands of a session leave to the next one. */
export interface SessionState {
  /** null: the machine's working directory. */
  readonly cwd: string | null;
  readonly env: Readonly<Record<string, string>>;
  readonly unsetNames: readonly string[];
  readonly hasProfile: boolean;
}

/** The changes of one command. */
export interface SessionChange {
  /** null: unchanged. */
  readonly cwd: string | null;
  readonly env: Readonly<Record<string, string>>;
  readonly unsetNames: readonly string[];
}

const PATH_BYTES_MAX = 4096;
/** Bytes of the names in the line that is sent, which must leave room for the command. */
const UNSET_BYTES_MAX = 16 * 1024;
/** Two environments, and their directories. */
export const READING_BYTES_MAX = 3 * ENV_BYTES_MAX;
/** Variables that every shell sets itself. */
const SHELL_NAMES: readonly string[] = ["PWD", "OLDPWD", "SHLVL", "_"];
/** Names that `unset` accepts. */
const UNSETTABLE = /^[A-Za-z_][A-Za-z0-9_]*$/;

const quoted = (text: string): string => `'${text.replaceAll("'", `'"'"'`)}'`;

/** Without the shell's functions and PATH. Entries end with NUL; `PWD` is among them. */
const ENVIRONMENT = "command -p env -0";
/** Written last: the output before it is complete. */
const MARK = "command echo";
const NOT_WRITTEN =
  "session: what this command changed is not kept, because /tmp of the machine is full or cannot be written";

/**
 * The argv for a string. `statePath` null: no change is read. `hasOwnCwd`: the caller chose the directory of
 * this one command.
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
    // On the same line, so that the line numbers of a syntax error are right. Then nothing runs.
    line,
  ];
  return shellCommand(state.hasProfile ? "-c" : "-lc", steps.join("; "));
}

const writeTo = (path: string): string =>
  `export PWD; ${ENVIRONMENT} 2>/dev/null >${path} && ${MARK} 2>/dev/null >>${path} || command echo "${NOT_WRITTEN}" >&2`;

/** A missing directory, such as one in /tmp after a restart, must not make the session unusable. */
const enter = (cwd: string): string =>
  `cd ${quoted(cwd)} 2>/dev/null || echo ${quoted(`session: the directory ${cwd} does not exist any more; the command runs in the machine's default directory`)} >&2`;

/** The argv for a program; `env` removes variables that the session has unset. */
export const programArgv = (argv: readonly string[], { unsetNames }: SessionState): readonly string[] =>
  unsetNames.length === 0 ? argv : ["env", ...unsetNames.flatMap((name) => ["-u", name]), ...argv];

/** The command that reads the change; it runs with the environment and directory of the first command. */
export const readingArgv = (statePath: string): readonly string[] => [
  "sh",
  "-c",
  `export PWD; ${ENVIRONMENT} && ${MARK}; cat ${statePath}; rm -f ${statePath}`,
];

/** The change, from the output of the reading command; null when the file is incomplete or missing. */
export function changeIn(output: Uint8Array, state: SessionState, hasOwnCwd: boolean): SessionChange | null {
  if (output.at(-1) !== LINE_BREAK || output.at(-2) !== 0) return null;
  const entries = entriesOf(output);
  const border = entries.findIndex((entry) => entry?.startsWith("\n"));
  const first = entries[border];
  if (first === undefined || first === null || first === "\n") return null;
  const before = variablesOf(entries.slice(0, border));
  for (const name of state.unsetNames) before.delete(name);
  const after = variablesOf([first.slice(1), ...entries.slice(border + 1)]);
  // Without it the file is not an environment of ours.
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

/** Entries that are not text are null. The last one has no end mark and is not an entry. */
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

/** The state after a change; null when it is too large to start the next command with. */
export function applyChange(state: SessionState, change: SessionChange): SessionState | null {
  const env: Record<string, string> = { ...state.env };
  for (const name of change.unsetNames) delete env[name];
  Object.assign(env, change.env);
  const sizes = Object.entries(env).map(([name, value]) => Buffer.byteLength(name + value) + 2);
  if (sizes.length > VARIABLES_MAX) return null;
  if (sizes.some((bytes) => bytes > ARGUMENT_BYTES_MAX)) return null;
  if (sizes.reduce((sum, bytes) => sum + bytes, 0) > ENV_BYTES_MAX) return null;
  const unset = new Set([...state.unsetNames, ...change.unsetNames]);
  for (const name of Object.keys(change.env)) unset.delete(name);
  if (Buffer.byteLength([...unset].join(" ")) > UNSET_BYTES_MAX) return null;
  return { cwd: change.cwd ?? state.cwd, env, unsetNames: [...unset], hasProfile: true };
}
