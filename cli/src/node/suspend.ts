/**
 * `flotilla node suspend` and `resume`, on the node's host, before the host goes down and if it did not.
 *
 * The node agent does the work, also when this program ends early. The exit code is 1 when a machine still
 * ran at the deadline.
 */
import { spawn } from "node:child_process";
import { text } from "node:stream/consumers";
import { settings } from "@flotilla/contract/settings";
import type { Call } from "../call.ts";
import { EXIT_REFUSED, Failure } from "../failure.ts";
import { childEnvironment, SUSPEND_MAIN } from "../up/launch.ts";

/** Less than systemd gives a service to stop, by default. */
const DEADLINE_DEFAULT_S = 80;

export interface SuspendOptions {
  readonly deadline?: number;
}

/** As the node's program prints it: ids of machines. */
interface Suspended {
  readonly suspended: readonly string[];
  readonly stopped: readonly string[];
  readonly running: readonly string[];
}

export const suspend = {
  async run(call: Call, _operands: readonly string[], { deadline = DEADLINE_DEFAULT_S }: SuspendOptions) {
    using _progress = call.output.progress("suspending the machines of this host");
    const done = JSON.parse(await askAgent(call, ["suspend", String(deadline * 1000)])) as Suspended;
    if (call.output.isJson) call.output.json(done);
    else for (const line of renderSuspended(done)) call.output.line(line);
    return done.running.length === 0 ? 0 : EXIT_REFUSED;
  },
};

export const resume = {
  async run(call: Call) {
    await askAgent(call, ["resume"]);
    if (call.output.isJson) call.output.json({});
    else call.output.line("the machines of this host run again");
  },
};

/** Pure. */
export function renderSuspended({ suspended, stopped, running }: Suspended): readonly string[] {
  const count = (ids: readonly string[]): string => `${ids.length} ${ids.length === 1 ? "machine" : "machines"}`;
  return [
    `${count(suspended)} suspended, ${count(stopped)} shut down; they run again when the node agent starts, or with \`flotilla node resume\``,
    ...(running.length === 0
      ? []
      : [`${count(running)} still running at the deadline, which end with the host: ${running.join(" ")}`]),
  ];
}

async function askAgent(call: Call, argv: readonly string[]): Promise<string> {
  const { dataDir } = call.options;
  const set = dataDir === undefined ? {} : { [settings.dataDirectory.env]: dataDir };
  const child = spawn(process.execPath, [SUSPEND_MAIN, ...argv], {
    env: childEnvironment(call.world.environment, "node", set),
    stdio: ["ignore", "pipe", "pipe"],
  });
  const ended = new Promise<number | null>((resolve) => child.once("close", resolve));
  const [answer, failure, code] = await Promise.all([text(child.stdout), text(child.stderr), ended]);
  if (code !== 0) throw new Failure(failure.trim(), "nothing was changed");
  return answer;
}
