/**
 * `flotilla server`, `ingress`, `node` and `e2b`: runs one program in this process.
 *
 * The process becomes the program (execve): a service manager sees the program's own process, signals and
 * exit code. Flags are passed on unchanged; the program reads its settings itself.
 */
import { type Setting, settings } from "@flotilla/contract/settings";
import type { Call } from "../call.ts";
import { childEnvironment, E2B_MAIN, INGRESS_MAIN, NODE_MAIN, programCommand, SERVER_MAIN } from "./launch.ts";

const MAINS = { server: SERVER_MAIN, ingress: INGRESS_MAIN, node: NODE_MAIN, e2b: E2B_MAIN } as const;

type Options = Readonly<Record<string, string | undefined>>;
type E2bOptions = Options & { readonly support?: boolean };

export const server = {
  run: (call: Call, _operands: readonly string[], options: Options) => runAs(call, "server", options),
};
export const ingress = {
  run: (call: Call, _operands: readonly string[], options: Options) => runAs(call, "ingress", options),
};
export const node = {
  run: (call: Call, _operands: readonly string[], options: Options) => runAs(call, "node", options),
};
export const e2b = {
  run: (call: Call, _operands: readonly string[], { support, ...options }: E2bOptions) =>
    runAs(call, "e2b", options, support === true ? ["--support"] : []),
};

async function runAs(
  call: Call,
  program: keyof typeof MAINS,
  options: Options,
  more: readonly string[] = [],
): Promise<never> {
  const flags = Object.values<Setting<unknown>>(settings).flatMap(({ flag }) => {
    const value =
      flag === undefined ? undefined : options[flag.replace(/-(\w)/g, (_, letter: string) => letter.toUpperCase())];
    return value === undefined ? [] : [`--${flag}=${value}`];
  });
  const environment = childEnvironment(call.world.environment, program, {});
  const command = programCommand(MAINS[program]);
  process.execve?.(command[0], [...command, ...flags, ...more], environment);
  throw new Error("this Node cannot replace its process; start Flotilla with ./flotilla, which uses a Node that can");
}
