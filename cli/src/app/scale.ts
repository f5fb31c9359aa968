/**
 * `flotilla app scale APP COUNT`: changes how many instances serve.
 */
import { InvalidArgumentError } from "commander";
import { countOrZero } from "../arguments.ts";
import type { Call } from "../call.ts";
import { usage } from "../failure.ts";
import { endChange, type WaitOptions } from "./wait.ts";

export async function run(
  call: Call,
  [name = "", text = ""]: readonly string[],
  options: WaitOptions,
): Promise<number | void> {
  return await endChange(call, await call.flotilla().scaleApp(name, { count: read(text) }), options);
}

function read(text: string): number {
  try {
    return countOrZero(text);
  } catch (error) {
    if (!(error instanceof InvalidArgumentError)) throw error;
    throw usage(`${text} is not a number of instances`, "give a whole number; 0 keeps the app without instances");
  }
}
