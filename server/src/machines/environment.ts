/**
 * Checks what is passed to programs in a machine: environment, arguments, paths. Pure.
 *
 * The limits are those of the guest's kernel and agent, and the contract's; here they become refusals that
 * say what to do, before a boot or a command fails on them.
 */
import { Refusal } from "@flotilla/contract/errors";
import { ARGUMENT_BYTES_MAX, ARGUMENTS_MAX, ENV_BYTES_MAX, VARIABLES_MAX } from "@flotilla/contract/limits";

const refuse = (text: string): never => {
  throw new Refusal("invalid_request", text);
};

/** The environment as given; a value of null does not occur, the schema refuses it. */
export function checkEnvironment(env: Readonly<Record<string, string>> | null | undefined): Record<string, string> {
  let total = 0;
  const variables = Object.entries(env ?? {});
  if (variables.length > VARIABLES_MAX)
    refuse(
      `env has ${variables.length} variables; at most ${VARIABLES_MAX} are possible; pass many values in one, or as a file`,
    );
  for (const [name, value] of variables) {
    if (name === "" || name.includes("=") || name.includes("\0"))
      refuse(`env has the name ${JSON.stringify(name)}: a name is not empty and has no "=" and no NUL`);
    const bytes = Buffer.byteLength(name) + Buffer.byteLength(value) + 2;
    if (bytes > ARGUMENT_BYTES_MAX)
      refuse(`env ${name} is larger than the ${ARGUMENT_BYTES_MAX} bytes one variable may have; pass it as a file`);
    total += bytes;
  }
  if (total > ENV_BYTES_MAX)
    refuse(`env is larger than the ${ENV_BYTES_MAX} bytes all variables may have together; pass large values as files`);
  return { ...env };
}

/** Variables written as `NAME=value`; the last one of a name holds. */
export function environmentOf(lines: readonly string[]): Record<string, string> {
  const pairs = lines.map((line): readonly [string, string] => {
    const at = line.indexOf("=");
    return at < 0
      ? refuse(`env has ${JSON.stringify(line)}: write it as NAME=value`)
      : [line.slice(0, at), line.slice(at + 1)];
  });
  return Object.fromEntries(pairs);
}

/** `field`: that of a request's body, which a refusal then names. Absent: it is a request's command. */
export function checkArguments(argv: readonly string[], advice: string, field?: string): readonly string[] {
  const what = field ?? "command";
  const refuseArguments = (text: string): never => {
    throw field === undefined ? new Refusal("invalid_request", text) : new Refusal("invalid_body", text, { field });
  };
  if (argv[0] === "") refuseArguments(`${what} has an empty program name`);
  if (argv.length > ARGUMENTS_MAX)
    refuseArguments(`${what} has ${argv.length} arguments; at most ${ARGUMENTS_MAX} are possible; ${advice}`);
  for (const [index, argument] of argv.entries()) {
    if (Buffer.byteLength(argument) >= ARGUMENT_BYTES_MAX)
      refuseArguments(
        `${what} argument ${index} is larger than the ${ARGUMENT_BYTES_MAX} bytes one may have; ${advice}`,
      );
  }
  const bytes = argv.reduce((sum, argument) => sum + Buffer.byteLength(argument) + 1, 0);
  // The kernel refuses more than 2 MiB for arguments and environment; the rest is left for the environment.
  if (bytes > ARGUMENTS_BYTES_MAX)
    refuseArguments(
      `${what} is larger than the ${ARGUMENTS_BYTES_MAX} bytes all arguments may have together; ${advice}`,
    );
  return argv;
}

const ARGUMENTS_BYTES_MAX = 1024 * 1024;

export function checkAbsolutePath(path: string | null | undefined, what: string): string | null {
  if (path === null || path === undefined || path === "") return null;
  if (!path.startsWith("/")) refuse(`${what} ${JSON.stringify(path)} is not an absolute path; begin it with "/"`);
  return path;
}
