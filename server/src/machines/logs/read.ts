/**
 * Reads a machine's log from its node, and follows it over the node agent's restarts and the machine's stops and starts.
 *
 * Always:
 * - the log is read from its node, whatever the machine does; nothing of it is kept here but what the caller has not
 *   read yet, one piece of the log;
 * - a follower hears each line once: the node says where it stands, and a connection that broke goes on from there;
 * - it ends when the machine is deleted or the caller has gone. Without `follow` a connection that breaks breaks the
 *   answer, so that nobody takes a part for the whole.
 */
import type { Readable } from "node:stream";
import { Refusal } from "@flotilla/contract/errors";
import { type NodeLog, openLogOnNode } from "../../link/open-log.ts";
import type { MachineRecord } from "../record.ts";
import type { MachineServices } from "../services.ts";
import { machineNotFound } from "../start.ts";
import { includes, UNREACHABLE_STATUSES } from "../state.ts";
import { nodeUnreachableText } from "../view.ts";
import { LogAnswer } from "./answer.ts";
import { type LogFormat, LogMessages, logEvent } from "./lines.ts";

/** Between two tries to reach a log that is not there, or not there any more. */
const RETRY_MS = 1_000;
/** More than a node says at once. */
const PIECE_CHARACTERS_MAX = 4 * 1024 * 1024;

export interface LogsAsked {
  readonly tenantId: string;
  readonly id: string;
  readonly tail: number;
  readonly isFollowing: boolean;
  readonly format: LogFormat;
}

/** Throws a Refusal when there is no such machine, or its node can not be asked now; who follows waits for a node. */
export async function readLogs(services: MachineServices, asked: LogsAsked): Promise<Readable> {
  const machine = services.cache.current(asked) ?? (await services.cache.read(asked));
  if (machine === undefined) throw machineNotFound(asked.id);
  const reading = new LogReading(services, asked);
  const first = await reading.open(machine).catch((error: unknown) => {
    if (asked.isFollowing) return null;
    reading.answer.destroy();
    throw error;
  });
  void reading.run(first);
  return reading.answer;
}

class LogReading {
  readonly answer: LogAnswer;
  readonly #services: MachineServices;
  readonly #asked: LogsAsked;
  /** Behind the last lines that came; null: none have. */
  #position: string | null = null;

  constructor(services: MachineServices, asked: LogsAsked) {
    this.#services = services;
    this.#asked = asked;
    const { clock } = services.context;
    const farewell = (text: string): string => logEvent({ at: clock.now(), source: "node", text }, asked.format);
    this.answer = new LogAnswer(clock, asked.isFollowing ? farewell : null);
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
    const { tail, isFollowing } = this.#asked;
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

  /** Sends what there is, and for who follows what comes. Never rejects. */
  async run(first: NodeLog | null): Promise<void> {
    const { answer } = this;
    let body = first;
    for (;;) {
      try {
        if (body !== null) await this.#forward(body);
        if (!this.#asked.isFollowing) return answer.finish();
      } catch (error) {
        if (!this.#asked.isFollowing) return answer.fail(error);
      }
      do {
        await answer.wait(RETRY_MS);
        const machine = answer.gone.aborted ? undefined : await this.#read().catch(() => null);
        if (machine === undefined) return answer.finish();
        body = machine === null ? null : await this.open(machine).catch(() => null);
      } while (body === null);
    }
  }

  /** Lines count as sent with the position behind them, which is where another connection goes on. */
  async #forward(body: NodeLog): Promise<void> {
    const messages = new LogMessages();
    let text = "";
    for await (const chunk of body) {
      for (const message of messages.push(chunk)) {
        if (!("next" in message)) text += logEvent(message, this.#asked.format);
        else {
          this.#position = message.next;
          await this.answer.write(text);
          text = "";
        }
        if (text.length > PIECE_CHARACTERS_MAX) throw new Error("too many lines of a log without a position");
      }
    }
  }

  /** The machine as it is; undefined when it has been deleted. */
  async #read(): Promise<MachineRecord | undefined> {
    const { cache } = this.#services;
    return cache.current(this.#asked) ?? (await cache.read(this.#asked));
  }
}
