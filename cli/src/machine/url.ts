/**
 * `flotilla machine url NAME`: the machine's address, as the only line on standard output, for scripts. A
 * machine without one is a failure, also with --json, which then prints null.
 */
import type { Call } from "../call.ts";
import { Failure } from "../failure.ts";
import { findMachine } from "./find.ts";

export async function run(call: Call, [reference = ""]: readonly string[]): Promise<void> {
  const machine = await findMachine(call.flotilla(), reference);
  const { url, ports, state } = machine;
  if (call.output.isJson) call.output.json({ url });
  if (url === null) {
    const name = machine.name ?? machine.id;
    throw ports.length === 0
      ? new Failure(`${name} publishes no port`, "`flotilla machine create --port` publishes ports")
      : new Failure(`${name} has no address while it is ${state}`, `\`flotilla machine start ${name}\` boots it`);
  }
  call.output.line(url);
  if (!machine.public && call.output.isWatched) {
    call.output.note(
      `it needs a key; \`flotilla machine share ${machine.name ?? machine.id}\` makes a link for others`,
    );
  }
}
