/**
 * A command on the link, served over HTTP to a caller in this process.
 */
import { once } from "node:events";
import type { ClientRequest, IncomingMessage, ServerResponse } from "node:http";
import type { TestContext } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { encodeLinkFrame } from "@flotilla/contract/link/frames";
import type { Guest } from "../../src/guest/guest.ts";
import { type LinkExecOptions, serveExec } from "../../src/link/exec.ts";
import { requestTo } from "./request-to.ts";

const START = { argv: ["x"], cwd: null, env: {}, user: null, timeoutMs: null, isBackground: false };

/** The frame that starts a command without input. */
export const startFrame = (more: object = {}): Buffer =>
  encodeLinkFrame("start", JSON.stringify({ ...START, hasStdin: false, terminal: null, ...more }));

export interface ServedExec {
  readonly sent: ClientRequest;
  readonly response: IncomingMessage;
  /** The server's side of the response. */
  readonly answer: ServerResponse;
}

export type ServedOptions = Partial<LinkExecOptions> & { readonly guest: Guest };

/**
 * Sends the frame, and waits until the answer begins. The request does not end if `isOpen`; `onAnswer` sees
 * the answer before anything is written.
 */
export async function servedExec(
  t: TestContext,
  options: ServedOptions,
  first: Buffer = startFrame(),
  {
    isOpen = false,
    onAnswer = () => undefined,
  }: { isOpen?: boolean; onAnswer?: (answer: ServerResponse) => void } = {},
): Promise<ServedExec> {
  const answered = Promise.withResolvers<ServerResponse>();
  const sent = await requestTo(t, (request, answer) => {
    onAnswer(answer);
    answered.resolve(answer);
    serveExec(request, answer, { clock: systemClock, ...options });
  });
  if (isOpen) sent.write(first);
  else sent.end(first);
  const [response] = (await once(sent, "response")) as [IncomingMessage];
  return { sent, response, answer: await answered.promise };
}
