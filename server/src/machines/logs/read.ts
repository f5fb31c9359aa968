/**
 * Reads a machine's log from its node, and follows it over the node agent's restarts and the machine's stops
 * and starts.
 *
 * Always:
 * - The log is read from its node, whatever the state of the machine. At most one piece of it is buffered
 *   here for the caller.
 * - A follower gets each line once: the node sends positions, and after a broken connection reading continues
 *   from the last.
 * - It ends when the machine is deleted or the caller disconnects. Without `follow` a broken connection
 *   breaks the response, so that a part cannot be mistaken for the whole.
 */
import type { Readable } from "node:stream";
import { Refusal } from "@flotilla/contract/errors";
import { type LastMessage, StreamedAnswer } from "../../api/streamed-answer.ts";
import { type NodeLog, openLogOnNode } from "../../link/open-log.ts";
import type { MachineRecord } from "../record.ts";
import type { MachineServices } from "../services.ts";
import { machineNotFound } from "../../auth/not-found.ts";
import { includes, UNREACHABLE_STATUSES } from "../state.ts";
import { nodeUnreachableText } from "../view.ts";
import { type LogFormat, LogMessages, logEvent } from "./lines.ts";

/** Between two attempts to reach a log that is unavailable. */
const RETRY_MS = 1_000;
/** Longer than any message of a node. */
const PIECE_CHARACTERS_MAX = 4 * 1024 * 1024;

export interface LogsRequest {
  readonly tenantId: string;
  readonly id: string;
  readonly tail: number;
  readonly isFollowing: boolean;
  readonly format: LogFormat;
}

/**
 * Throws a Refusal when there is no such machine, or its node is unreachable; a follower waits for the node
 * instead.
 */
export async function readLogs(
  services: Pick<MachineServices, "cache" | "context" | "link">,
  request: LogsRequest,
): Promise<Readable> {
  const machine = services.cache.current(request) ?? (await services.cache.read(request));
  if (machine === undefined) throw machineNotFound(request.id);
  const reading = new LogReading(services, request);
  const first = await reading.open(machine).catch((error: unknown) => {
    if (request.isFollowing) return null;
    reading.answer.destroy();
    throw error;
  });
  void reading.run(first);
  return reading.answer;
}

class LogReading {
  readonly answer: StreamedAnswer;
  readonly #services: Pick<MachineServices, "cache" | "context" | "link">;
  readonly #request: LogsRequest;
  /** After the last lines received; null: none yet. */
  #position: string | null = null;

  constructor(services: Pick<MachineServices, "cache" | "context" | "link">, request: LogsRequest) {
    this.#services = services;
    this.#request = request;
    const { clock } = services.context;
    const lastMessage: LastMessage = (reason) => {
      const text = reason ?? "the server stops; follow the log again to continue";
      return logEvent({ at: clock.now(), source: "node", text }, request.format);
    };
    this.answer = new StreamedAnswer(clock, request.isFollowing ? lastMessage : null);
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
    const { tail, isFollowing } = this.#request;
    return await openLogOnNode(
      this.#services.link,
      { nodeId, address: nodeAddress },
      {
        machineId: id,
        from: this.#position === null ? { tail } : { after: this.#position },
        isFollowing,
        signal: this.answer.gone,
      },
    );
  }

  /** Sends existing lines and, with `follow`, new ones. Never rejects. */
  async run(first: NodeLog | null): Promise<void> {
    const { answer } = this;
    let body = first;
    for (;;) {
      try {
        if (body !== null) await this.#forward(body);
        if (!this.#request.isFollowing) return answer.finish();
      } catch (error) {
        if (!this.#request.isFollowing) return answer.fail(error);
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
    const messages = new LogMessages();
    let text = "";
    for await (const chunk of body) {
      for (const message of messages.push(chunk)) {
        if (!("next" in message)) text += logEvent(message, this.#request.format);
        else {
          this.#position = message.next;
          await this.answer.write(text);
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
