/**
 * The text that `flotilla up` prints once everything runs: the address, the admin key the first time, and
 * three lines to copy. Pure.
 *
 * Always: the lines work as printed, in a new terminal, in the directory where `up` was started. Settings
 * that such a terminal does not have (another port, another data directory, a saved login elsewhere) are
 * exported before them.
 */
import { relative } from "node:path";

export interface GreetingFacts {
  readonly url: string;
  readonly dataDirectory: string;
  readonly logDirectory: string | null;
  /** Only when this start made it. */
  readonly newAdminKey: string | null;
  /** A link that signs one browser in, once; null: none could be made. */
  readonly consoleUrl: string | null;
  readonly startedInMs: number;
  /** The launcher's absolute path, and the directory from which it is called. */
  readonly launcher: string;
  readonly directory: string;
  /** Whether a new terminal's `flotilla` finds this server and its key without settings. */
  readonly isFoundByDefault: boolean;
}

export function greeting(facts: GreetingFacts): string[] {
  const keyFile = `${facts.dataDirectory}/admin.key`;
  const flotilla = command(facts.launcher, facts.directory);
  const exports = [
    `export FLOTILLA_URL=${facts.url} FLOTILLA_DATA_DIR=${quote(facts.dataDirectory)}`,
    `export FLOTILLA_API_KEY="$(cat ${quote(keyFile)})"`,
  ];
  const lines = [
    ...(facts.isFoundByDefault ? [] : exports),
    `${flotilla} machine create local/busybox --name hello --start`,
    `${flotilla} machine exec hello -- uname -a`,
    `${flotilla} machine rm hello`,
  ];
  return [
    `Flotilla runs at ${facts.url} (started in ${(facts.startedInMs / 1000).toFixed(1)} s)`,
    "",
    ...(facts.consoleUrl === null
      ? []
      : [
          `  console     ${facts.consoleUrl}`,
          `              opens once, within ten minutes; \`${flotilla} console\` prints a new link`,
        ]),
    ...(facts.newAdminKey === null
      ? [`  admin key   in ${keyFile}`]
      : [`  admin key   ${facts.newAdminKey}`, `              shown this once; kept in ${keyFile}`]),
    `  data        in ${facts.dataDirectory}`,
    ...(facts.logDirectory === null ? [] : [`  logs        in ${facts.logDirectory}`]),
    "",
    "A first machine, from another terminal:",
    "",
    ...lines.map((line) => `  ${line}`),
    "",
    "Ctrl-C stops Flotilla. Running machines keep running, and the next start adopts them.",
  ];
}

/** The launcher's path relative to the directory, so that no search path is needed. */
export function command(launcher: string, directory: string): string {
  const path = relative(directory, launcher);
  const short = path.startsWith("../../") ? launcher : path.includes("/") ? path : `./${path}`;
  return quote(short);
}

/** Quoted for the shell, only where necessary. */
export const quote = (word: string): string =>
  /^[\w./:@%+=-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
