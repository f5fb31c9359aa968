/**
 * Forwards a request for an app to one of its instances, and to another one where that is safe.
 *
 * Always:
 * - The instance is chosen from the table as it is at that moment, and the request counts there from then on.
 * - A request is sent again only if no byte of it can have been acted upon (attempts.ts).
 * - An instance that accepts no connection is passed over for a moment, and not waited for while there are
 *   others.
 */
import type { PassedReply } from "../../http/answer.ts";
import { Unanswered } from "../guest-request.ts";
import { type ForwardOptions, forwardOnce, type ForwardServices } from "../forward.ts";
import { type AppRoutes, type ChosenInstance, noInstance } from "./app-routes.ts";
import { type End, isSentAgain } from "./attempts.ts";

/** How long one instance may take to accept a connection while there are others. */
const CONNECT_MS = 3_000;

export interface AppForwardServices extends ForwardServices {
  readonly apps: AppRoutes;
}

export interface AppForwardOptions extends Omit<ForwardOptions, "target"> {
  readonly appId: string;
  /** Called at each attempt, with the id of the instance's machine. */
  readonly onAttempt: (machineId: string) => void;
}

/** Resolves when the head of an instance's answer has arrived. Throws a Refusal when none does. */
export async function forwardToApp(services: AppForwardServices, options: AppForwardOptions): Promise<PassedReply> {
  const { apps } = services;
  const { appId } = options;
  const tried = new Set<string>();
  let unanswered = 0;
  try {
    for (;;) {
      const serving = apps.whenServing();
      if (serving !== undefined) await serving;
      const chosen = apps.choose(appId, tried);
      const machineId = chosen.target.machine.id;
      tried.add(machineId);
      options.onAttempt(machineId);
      const { reply, end, error } = await attemptAt(services, options, chosen);
      if (reply !== null) return reply;
      if (end === "unanswered") unanswered += 1;
      if (isSentAgain(end, { made: tried.size, unanswered, isAnyLeft: chosen.isAnyLeft })) continue;
      throw end === "unconnected" ? noInstance() : error;
    }
  } catch (error) {
    options.raw.message.resume();
    throw error;
  }
}

type Attempted =
  | { readonly reply: PassedReply; readonly end: null; readonly error: null }
  | { readonly reply: null; readonly end: End; readonly error: unknown };

async function attemptAt(
  services: AppForwardServices,
  options: AppForwardOptions,
  { target, request, isAnyLeft }: ChosenInstance,
): Promise<Attempted> {
  const { apps, context } = services;
  const { signal } = options;
  const release = request.hold();
  const connecting = new AbortController();
  const cancel = (): void => connecting.abort(signal.reason);
  signal.addEventListener("abort", cancel, { once: true });
  if (signal.aborted) cancel();
  const timer = isAnyLeft ? context.clock.timer(CONNECT_MS, () => connecting.abort(TOO_SLOW)) : null;
  const attempt = { connecting: connecting.signal, hold: request.hold, isSent: false };
  try {
    const reply = await forwardOnce(services, { ...options, target }, attempt);
    apps.answered(target.machine.id);
    return { reply, end: null, error: null };
  } catch (error) {
    const end = endOf(error, { isSent: attempt.isSent, hasLeft: signal.aborted });
    if (end === "unconnected") apps.failed(target.machine.id);
    return { reply: null, end, error };
  } finally {
    timer?.cancel();
    signal.removeEventListener("abort", cancel);
    release();
  }
}

/** One for all, because making an error with its stack costs more than the rest. */
const TOO_SLOW = new Error(`no connection was accepted within ${CONNECT_MS / 1000} s`);

function endOf(error: unknown, { isSent, hasLeft }: { readonly isSent: boolean; readonly hasLeft: boolean }): End {
  if (hasLeft) return "left";
  if (!isSent) return "unconnected";
  return error instanceof Unanswered ? "unanswered" : "failed";
}
