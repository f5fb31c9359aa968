/**
 * Waits until a change of an app has ended: a rollout, or a new number of instances.
 *
 * Always: what ended the change is read from the app, so that a server that restarts meanwhile is asked
 * again. Ctrl-C ends the waiting and not the change.
 */
import { type AppInfo, FlotillaError } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { Failure } from "../failure.ts";
import { whileUnreachable } from "../server-unreachable.ts";
import { EXIT_INTERRUPTED, stoppable } from "../stoppable.ts";
import { appLines, progressLine, shortId } from "./view.ts";

export interface WaitOptions {
  readonly watch?: boolean;
  readonly detach?: boolean;
}

const POLL_MS = 500;

/** `begun`: the app as the change answered. Prints its address; throws a Failure if the change failed. */
export async function endChange(call: Call, begun: AppInfo, { watch, detach }: WaitOptions): Promise<number | void> {
  const { output } = call;
  if (detach === true) return show(call, begun);
  const stopping = new AbortController();
  let last = begun;
  const code = await stoppable(call, stopping, async () => {
    last = await follow(call, begun, { isWatched: watch === true, signal: stopping.signal });
  });
  if (code === EXIT_INTERRUPTED) {
    output.note(`${begun.name} continues to change; \`flotilla app show --watch ${begun.name}\` shows it`);
    return code;
  }
  judge(begun, last);
  show(call, last);
  if (last.status === "awaitingPromotion" && !output.isJson)
    output.note(`its canaries serve: \`flotilla app promote ${begun.name}\` replaces the others`);
}

function show({ output }: Call, app: AppInfo): void {
  if (output.isJson) output.json(app);
  else output.line(app.url);
}

/** Reads the app until nothing of the change is left to happen. */
async function follow(
  call: Call,
  begun: AppInfo,
  { isWatched, signal }: { readonly isWatched: boolean; readonly signal: AbortSignal },
): Promise<AppInfo> {
  const { output, world } = call;
  const flotilla = call.flotilla();
  using live = isWatched ? output.live() : null;
  using progress = isWatched ? null : output.progress(progressLine(begun));
  for (let app = begun; ; ) {
    live?.show(appLines(app, world.clock.now(), shortId));
    progress?.say(progressLine(app));
    if (hasEnded(begun, app)) return app;
    await world.clock.sleep(POLL_MS, signal);
    app = await whileUnreachable(call, (limit) => flotilla.getApp(begun.name, { ...limit, signal }), signal);
  }
}

/** Shows an app again whenever it changes, until it is destroyed or the program is asked to stop. */
export async function watch(call: Call, name: string): Promise<number> {
  const { output, world } = call;
  const flotilla = call.flotilla();
  const stopping = new AbortController();
  const { signal } = stopping;
  return await stoppable(call, stopping, async () => {
    using live = output.live();
    for (let app = await flotilla.getApp(name); ; ) {
      live.show(appLines(app, world.clock.now(), shortId));
      await world.clock.sleep(POLL_MS, signal);
      try {
        app = await whileUnreachable(call, (limit) => flotilla.getApp(name, { ...limit, signal }), signal);
      } catch (error) {
        if (error instanceof FlotillaError && error.status === 404) return;
        throw error;
      }
    }
  });
}

/** Whether the change that `begun` shows is over. Pure. */
export function hasEnded(begun: AppInfo, app: AppInfo): boolean {
  if (app.id !== begun.id) return true;
  const rollout = runningRollout(begun);
  if (rollout === null) return app.status !== "deploying";
  return runningRollout(app)?.operationId !== rollout.operationId || app.status === "awaitingPromotion";
}

const runningRollout = ({ rollout }: AppInfo): AppInfo["rollout"] => (rollout?.phase === "failed" ? null : rollout);

/** Throws a Failure unless the change that `begun` shows has ended well. Pure. */
export function judge(begun: AppInfo, app: AppInfo): void {
  const { name } = begun;
  const explain = `\`flotilla app explain ${name}\` says why each instance is as it is`;
  if (app.id !== begun.id) throw new Failure(`${name} was destroyed, and another app has its name`);
  const rollout = runningRollout(begun);
  if (rollout === null) {
    if (app.status === "failed" || app.status === "degraded")
      throw new Failure(app.message ?? `${name} is ${app.status}`, explain);
    return;
  }
  if (app.rollout?.operationId === rollout.operationId) {
    if (app.rollout.phase === "failed") throw new Failure(app.rollout.message, explain);
    return;
  }
  if (app.release !== rollout.to)
    throw new Failure(`release ${rollout.to} of ${name} was superseded by another change`, explain);
}
