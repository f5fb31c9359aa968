/**
 * The handlers of sessions: list, create, delete, exec.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { MachineSessionInfo } from "@flotilla/contract/exec";
import type { Static } from "@flotilla/contract/schema";
import type { HandlersOf } from "../../api/handler.ts";
import { listPage } from "../../api/list-page.ts";
import type { OutputSink } from "../../link/exec-frames.ts";
import { checkAbsolutePath, checkEnvironment } from "../environment.ts";
import type { CommandAnswers } from "../exec/answer.ts";
import { commandOf } from "../exec/request.ts";
import { claimForUse } from "../lift-fences.ts";
import type { MachineServices } from "../services.ts";
import { machineNotFound } from "../../auth/not-found.ts";
import { findMachine } from "../store.ts";
import { overBytesText, runInSession, sessionNotFound } from "./run.ts";
import { findSession, insertSession, listSessions, removeSession, type SessionRecord } from "./store.ts";

const SESSIONS_MAX = 256;

type SessionHandlers = HandlersOf<"listSessions" | "createSession" | "deleteSession" | "execInSession">;

export function sessionHandlers(services: MachineServices, answers: CommandAnswers): SessionHandlers {
  const { context, activity } = services;
  const { db } = context;
  return {
    async listSessions({ caller: { tenantId }, params: { id }, query }) {
      if ((await findMachine(db, { tenantId, id })) === undefined) throw machineNotFound(id);
      const found = (await listSessions(db, id)).map(sessionInfo);
      const keyOf = (session: (typeof found)[number]): string => `${session.createdAt} ${session.id}`;
      return { status: 200, ...listPage(found, query, { path: `/v1/machines/${id}/sessions`, keyOf }) };
    },
    async createSession(request) {
      const {
        body,
        params: { id },
        caller: { tenantId },
      } = request;
      const cwd = checkAbsolutePath(body?.cwd, "cwd");
      const env = checkEnvironment(body?.env);
      const machine = await findMachine(db, { tenantId, id });
      if (machine === undefined) throw machineNotFound(id);
      await claimForUse(services, machine);
      const madeAs = request.newId("session");
      const sessionId = body?.id ?? madeAs;
      const session = await insertSession(context, { machineId: id, id: sessionId, madeAs, cwd, env }, SESSIONS_MAX);
      if (session === "taken")
        throw new Refusal("conflict", `machine ${id} has a session ${sessionId} already; choose another id`);
      if (session === "overCount")
        throw new Refusal("quota_exceeded", `machine ${id} has ${SESSIONS_MAX} sessions; delete one that is not used`);
      if (session === "overBytes") throw new Refusal("quota_exceeded", overBytesText(id));
      activity.touch(id);
      return { status: 200, body: sessionInfo(session) };
    },
    async deleteSession({ caller: { tenantId }, params: { id, session_id: sessionId } }) {
      const session = await findSession(db, { tenantId, machineId: id, sessionId });
      if (session === undefined || !(await removeSession(db, { machineId: id, sessionId })))
        throw sessionNotFound(id, sessionId);
      activity.touch(id);
      return { status: 204 };
    },
    async execInSession(request) {
      const { params, query, body, signal, recordSent } = request;
      const { tenantId, keyId } = request.caller;
      const { accept } = request.headers;
      const { id, session_id: sessionId } = params;
      // A request that is invalid without a session is refused in the same way.
      commandOf(body);
      const options = { tenantId, keyId, id, sessionId, request: body, signal, recordSent };
      const run = (sink: OutputSink) => runInSession(services, options, sink);
      const answer = { tenantId, machineId: id, output: query.output, accept, signal, run };
      return body.stream === true ? await answers.streamed(answer) : await answers.collected(answer);
    },
  };
}

const sessionInfo = ({
  id,
  machineId,
  cwd,
  env,
  createdAt,
  lastExecAt,
}: SessionRecord): Static<typeof MachineSessionInfo> => ({
  id,
  machineId,
  status: "active",
  cwd,
  env: { ...env },
  createdAt: new Date(createdAt).toISOString(),
  lastExecAt: lastExecAt === null ? null : new Date(lastExecAt).toISOString(),
});
