/**
 * `flotilla machine shell NAME`: a terminal in a machine, which is started if it is stopped.
 */
import type { Call } from "../call.ts";
import { findMachine } from "./find.ts";
import { joinTerminal } from "./terminal.ts";

export interface ShellOptions {
  readonly program?: string;
}

export async function run(call: Call, [reference = ""]: readonly string[], options: ShellOptions): Promise<number> {
  const machine = await findMachine(call.flotilla(), reference);
  return joinTerminal(call, machine, options.program === undefined ? {} : { cmd: options.program });
}
