/**
 * Reads a machine's log from its node, and follows it over the node agent's restarts and the machine's stops
 * and starts.
 *
 * Always:
 * - The log is read from its node, whatever the state of the machine. At most one piece of it is buffered
 *   here for the caller.
 * - A follower gets each line once: the node sends positions, and after a broken connection reading continues
 *   from the last. The cursors of callers are these positions.
 * - It ends when the machine is deleted or the caller disconnects. Without `follow` a broken connection
 *   breaks the response, so that a part cannot be mistaken for the whole.
 */
import type { Readable } from "node:stream";
import { Refusal } from "@flotilla/contract/errors";
import { type LastMessage, StreamedAnswer } from "../../api/streamed-answer.ts";
import { type NodeLog, type NodeLogQuery, openLogOnNode } from "../../link/open-log.ts";
import type { MachineRecord } from "../record.ts";
import type { MachineServices } from "../services.ts";
import { machineNotFound } from "../../auth/not-found.ts";
import { includes, UNREACHABLE_STATUSES } from "../state.ts";
import { nodeUnreachableText } from "../view.ts";
import { logEvent, markEvent } from "./lines.ts";
import { invalid, isPlainPart, type LogPart, type LogPlace } from "./part.ts";

/** Between two attempts to reach a log that is unavailable. */
const RETRY_MS = 1_000;
/** Longer than any message of a node. */
const PIECE_CHARACTERS_MAX = 4 * 1024 * 1024;
const CURSOR = /^\d{1,15}:\d{1,15}$/;
/** Before every line. */
const BEGINNING = "0:0";

export interface LogsRequest {
  readonly tenantId: string;
  readonly id: string;
  readonly part: LogPart;
}

/**
 * Throws a Refusal when there is no such machine, or its node is unreachable; a follower waits for the node
 * instead.
 */
export async function readLogs(
  services: Pick<MachineServices, "cache" | "context" | "link">,
  request: LogsRequest,
): Promise<Readable> {
  const query = nodeQuery(request.part);
  const machine = services.cache.current(request) ?? (await services.cache.read(request));
  if (machine === undefined) throw machineNotFound(request.id);
  const reading = new LogReading(services, request, query);
  const first = await reading.open(machine).catch((error: unknown) => {
    if (request.part.isFollowing && !(error instanceof Refusal && error.code === "invalid_request")) return null;
    reading.answer.destroy();
    throw error;
  });
  void reading.run(first);
  return reading.answer;
}

/** Throws a Refusal for what is not a cursor of a machine's log. */
function nodeQuery(part: LogPart): NodeLogQuery {
  if (isPlainPart(part)) return { tail: part.tail ?? 0 };
  const { start, end, tail, limit, search } = part;
  const startQuery =
    start === null ? {} : "time" in start ? { since: start.time } : { after: cursorOf("after", start) };
  const endQuery = end === null ? {} : "time" in end ? { until: end.time } : { before: cursorOf("before", end) };
  return {
    ...startQuery,
    ...endQuery,
    ...(tail === null ? {} : { tail }),
    ...(limit === null ? {} : { limit }),
    ...(search === "" ? {} : { search }),
    marks: 1,
  };
}

function cursorOf(field: string, { cursor }: LogPlace & { readonly cursor: string }): string {
  if (!CURSOR.test(cursor)) throw invalid(field, "it is not a cursor of a machine's log; send one as it was received");
  return cursor;
}

class LogReading {
  readonly answer: StreamedAnswer;
  readonly #services: Pick<MachineServices, "cache" | "context" | "link">;
  readonly #request: LogsRequest;
  readonly #query: NodeLogQuery;
  /** After the last lines received; null: none yet. */
  #position: string | null = null;

  constructor(
    services: Pick<MachineServices, "cache" | "context" | "link">,
    request: LogsRequest,
    query: NodeLogQuery,
  ) {
    this.#services = services;
    this.#request = request;
    this.#query = query;
    const { clock } = services.context;
    const { format, isFollowing } = request.part;
    const lastMessage: LastMessage = (reason) => {
      const text = reason ?? "the server stops; follow the log again to continue";
      return logEvent({ at: clock.now(), source: "node", text }, format);
    };
    this.answer = new StreamedAnswer(clock, isFollowing ? lastMessage : null, { isSilent: format === "plain" });
  }

  /** null: no node has the machine now. Throws a Refusal when its node does not answer. */
  async open({ id, nodeId, nodeStatus, nodeAddress }: MachineRecord): Promise<NodeLog | null> {
    if (nodeId === null || nodeAddress === null) return null;
    if (nodeStatus !== null && includes(UNREACHABLE_STATUSES, nodeStatus)) {
      throw new Refusal(
        "unavailable",
        `the log of machine ${id} cannot be read: ${nodeUnreachableText(nodeId, nodeStatus)}`,
      );
    }
    const { search, marks } = this.#query;
    const query = this.#position === null ? this.#query : { after: this.#position, search, marks };
    return await openLogOnNode(
      this.#services.link,
      { nodeId, address: nodeAddress },
      { machineId: id, query, isFollowing: this.#request.part.isFollowing, signal: this.answer.gone },
    );
  }

  /** Sends existing lines and, with `follow`, new ones. Never rejects. */
  async run(first: NodeLog | null): Promise<void> {
    const { answer } = this;
    const { isFollowing, hasCursors } = this.#request.part;
    let body = first;
    if (body === null && hasCursors) {
      // It has never run, or its node is unreachable: every line is yet to come.
      const end = isFollowing ? "" : markEvent(BEGINNING, { edge: "end" });
      await answer.write(markEvent(BEGINNING, { edge: "start" }) + end);
    }
    for (;;) {
      try {
        if (body !== null) await this.#forward(body);
        if (!isFollowing) return answer.finish();
      } catch (error) {
        if (!isFollowing) return answer.fail(error);
      }
      do {
        await answer.wait(RETRY_MS);
        const machine = answer.gone.aborted ? undefined : await this.#read().catch(() => null);
        if (machine === undefined) return answer.finish();
        body = machine === null ? null : await this.open(machine).catch(() => null);
      } while (body === null);
    }
  }

  /** Lines count as sent with the position after them, from which the next connection continues. */
  async #forward(body: NodeLog): Promise<void> {
    const { format, hasCursors } = this.#request.part;
    let text = "";
    for await (const messages of body) {
      for (const message of messages) {
        if (!("next" in message)) text += logEvent(message, format, hasCursors ? { cursor: message.from } : {});
        else {
          this.#position = message.next;
          await this.answer.write(hasCursors ? text + markEvent(message.next, message) : text);
          text = "";
        }
        if (text.length > PIECE_CHARACTERS_MAX) throw new Error("too many lines of a log without a position");
      }
    }
  }

  /** The present machine; undefined when it was deleted. */
  async #read(): Promise<MachineRecord | undefined> {
    const { cache } = this.#services;
    return cache.current(this.#request) ?? (await cache.read(this.#request));
  }
}
