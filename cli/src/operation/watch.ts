/**
 * Watches an operation until it has ended, and shows its steps on a terminal.
 *
 * Always: the operation runs on the server. When watching is stopped (Ctrl-C), a note says that the operation
 * continues. A server that is unreachable for a moment is asked again.
 */
import type { Flotilla, Operation } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { Failure } from "../failure.ts";
import { whileUnreachable } from "../server-unreachable.ts";

const PERIOD_MS = 500;

/** The ended operation, or null when the watching was stopped. Throws a Failure when it did not succeed. */
export async function watchOperation(call: Call, flotilla: Flotilla, begun: Operation): Promise<Operation | null> {
  const ended = await watchToItsEnd(call, flotilla, begun);
  if (ended !== null && ended.status !== "succeeded") throw failed(call, ended);
  return ended;
}

/** The ended operation, however it ended, or null when the watching was stopped. */
export async function watchToItsEnd(call: Call, flotilla: Flotilla, begun: Operation): Promise<Operation | null> {
  const stopped = new AbortController();
  const forget = call.world.onStopSignal(() => stopped.abort());
  try {
    using progress = call.output.progress(titleOf(begun));
    if (!call.output.isWatched) call.output.note(`${titleOf(begun)}: ${begun.id}`);
    let operation = begun;
    while (operation.status === "running") {
      await call.world.clock.sleep(PERIOD_MS, stopped.signal);
      if (stopped.signal.aborted) break;
      const { signal } = stopped;
      operation = await whileUnreachable(
        call,
        (limit) => flotilla.getOperation(begun.id, { signal, ...limit }),
        signal,
      );
      progress.say(lineOf(operation));
    }
    if (operation.status !== "running") return operation;
  } catch (error) {
    if (!stopped.signal.aborted) throw error;
  } finally {
    forget();
  }
  call.output.note(`${titleOf(begun)} continues; \`flotilla operation get ${begun.id}\` shows its progress`);
  return null;
}

const titleOf = ({ kind, resource }: Operation): string => `${kind} of ${resource.name ?? resource.id}`;

/** The running step; of several steps, how many are done. */
function lineOf(operation: Operation): string {
  const { steps } = operation;
  const running = steps.find(({ status }) => status === "running");
  const done = steps.filter(({ status }) => status === "succeeded" || status === "failed").length;
  const count = steps.length > 1 ? ` (${done} of ${steps.length} steps done)` : "";
  const what =
    running === undefined ? "" : `: ${running.name}${running.message === null ? "" : `: ${running.message}`}`;
  return `${titleOf(operation)}${count}${what}`;
}

function failed(call: Call, operation: Operation): Failure {
  const several = operation.steps.length > 1;
  if (several)
    for (const { name, status, message } of operation.steps) call.output.note(`${name}: ${message ?? status}`);
  const advice = several ? null : `\`flotilla operation get ${operation.id}\` shows what was done`;
  return new Failure(operation.error ?? `${titleOf(operation)} was ${operation.status}`, advice);
}
