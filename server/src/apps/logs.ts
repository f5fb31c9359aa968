/**
 * The log of an app: the lines of all its instances, each with the instance it is of.
 *
 * Always:
 * - What there is comes in the order of its instants, at most `tail` lines together. A follower then gets
 *   each new line once, also of instances that are made later, until the app is destroyed or the caller
 *   disconnects.
 * - An instance whose node cannot be asked is named in a line of the control plane's own, and a follower gets
 *   its lines when the node is back. A rollout ends nothing.
 */
import type { Readable } from "node:stream";
import { mapAtMost } from "@flotilla/base/concurrency";
import { ownMessageOf } from "@flotilla/base/errors";
import { Refusal } from "@flotilla/contract/errors";
import { LOG_TAIL_DEFAULT, LOG_TAIL_MAX } from "@flotilla/contract/limits";
import type { LogLine } from "@flotilla/contract/link/link";
import { StreamedAnswer } from "../api/streamed-answer.ts";
import { openLogOnNode } from "../link/open-log.ts";
import { type LogFormat, LogMessages } from "../machines/logs/lines.ts";
import type { MachineServices } from "../machines/services.ts";
import { includes, UNREACHABLE_STATUSES } from "../machines/state.ts";
import { nodeUnreachableText } from "../machines/view.ts";
import { instanceId } from "./instances.ts";
import { requireApp } from "./reading.ts";
import { type AppName, type AppRecord, findAnyApp, listInstances } from "./store.ts";

/** Between two looks for new instances, and two attempts to reach a log. */
const PERIOD_MS = 1_000;
const READ_AT_A_TIME = 8;

type LogServices = Pick<MachineServices, "cache" | "context" | "link">;

interface LogOptions {
  readonly isFollowing: boolean;
  readonly tail: number | undefined;
  readonly format: LogFormat;
}

/** Throws a Refusal when there is no such app, or more lines are asked than one answer has. */
export async function logsOf(services: LogServices, name: AppName, options: LogOptions): Promise<Readable> {
  const { tail = LOG_TAIL_DEFAULT, isFollowing, format } = options;
  if (tail > LOG_TAIL_MAX) {
    const text = `tail: ${tail} lines of a log are more than one request may have; request at most ${LOG_TAIL_MAX}`;
    throw new Refusal("invalid_request", text, { field: "tail" });
  }
  const app = await requireApp(services.context.db, name);
  const reading = new AppLog(services, app, { tail, isFollowing, format });
  void reading.run();
  return reading.answer;
}

/**
 * A line in the caller's format. Each part between carriage returns is a line to readers of event streams.
 */
function appLogEvent(id: string, { at, source, text }: LogLine, format: LogFormat): string {
  if (format === "json") {
    const record = { timestamp: new Date(at).toISOString(), level: "info", instanceId: id, message: text, source };
    return `data: ${JSON.stringify(record)}\n\n`;
  }
  const parts = text.split("\r").filter((part) => part !== "");
  const own = source === "node" ? "flotilla: " : "";
  return (parts.length === 0 ? [""] : parts).map((part) => `data: [${id}] ${own}${part}\n\n`).join("");
}

interface Line extends LogLine {
  readonly machineId: string;
}

type ReadOptions = LogOptions & { readonly tail: number };

class AppLog {
  readonly answer: StreamedAnswer;
  readonly #services: LogServices;
  readonly #app: AppRecord;
  readonly #options: ReadOptions;
  /** After the last line that was received of each machine; null: none yet. */
  readonly #positions = new Map<string, string | null>();
  /** Machines whose log is followed, until its end. */
  readonly #followed = new Map<string, Promise<void>>();

  constructor(services: LogServices, app: AppRecord, options: ReadOptions) {
    const { clock } = services.context;
    this.#services = services;
    this.#app = app;
    this.#options = options;
    const last = (reason: string | null): string =>
      this.#event(app.id, this.#remark(reason ?? "the server stops; follow the log again to continue"));
    this.answer = new StreamedAnswer(clock, options.isFollowing ? last : null);
  }

  /** Never rejects. */
  async run(): Promise<void> {
    const { answer } = this;
    try {
      await this.#existing();
      while (this.#options.isFollowing && !answer.gone.aborted) {
        await answer.wait(PERIOD_MS);
        if (!(await this.#followNew())) break;
      }
      answer.finish();
    } catch (error) {
      answer.fail(error);
    }
    await Promise.all(this.#followed.values());
  }

  async #machines(): Promise<readonly string[]> {
    const rows = await listInstances(this.#services.context.db, [this.#app.id]);
    return rows.flatMap(({ machineId, machine }) =>
      machine === null || machine.deletedAt !== null ? [] : [machineId],
    );
  }

  async #existing(): Promise<void> {
    const { tail } = this.#options;
    let lines: Line[] = [];
    await mapAtMost(READ_AT_A_TIME, await this.#machines(), async (machineId) => {
      const own: Line[] = [];
      await this.#read(machineId, { isFollowing: false, onLines: async (more) => void own.push(...more) }).catch(
        (error: unknown) => {
          own.push({ machineId, ...this.#remark(`its log cannot be read: ${ownMessageOf(error)}`) });
        },
      );
      lines = [...lines, ...own].toSorted((one, other) => one.at - other.at).slice(-Math.max(1, tail));
    });
    if (tail === 0) return;
    for (const line of lines) await this.answer.write(this.#event(instanceId(line.machineId), line));
  }

  /** Follows the machines that are not followed. false: the app is destroyed, and none is left. */
  async #followNew(): Promise<boolean> {
    const { db } = this.#services.context;
    let machines: readonly string[];
    try {
      machines = await this.#machines();
      if (machines.length === 0 && ((await findAnyApp(db, this.#app.id))?.isDestroyed ?? true)) return false;
    } catch {
      // The database is away for a while; what is followed continues.
      return true;
    }
    for (const machineId of machines) {
      if (this.#followed.has(machineId)) continue;
      const onLines = async (lines: readonly Line[]): Promise<void> => {
        await this.answer.write(lines.map((line) => this.#event(instanceId(machineId), line)).join(""));
      };
      const following = this.#read(machineId, { isFollowing: true, onLines })
        .catch(() => undefined)
        .then(() => void this.#followed.delete(machineId));
      this.#followed.set(machineId, following);
    }
    return true;
  }

  /** Lines count as received with the position after them. Throws a Refusal when its node does not answer. */
  async #read(
    machineId: string,
    {
      isFollowing,
      onLines,
    }: { readonly isFollowing: boolean; readonly onLines: (lines: readonly Line[]) => Promise<void> },
  ): Promise<void> {
    const { cache, link } = this.#services;
    const name = { tenantId: this.#app.tenantId, id: machineId };
    const machine = cache.current(name) ?? (await cache.read(name));
    if (machine === undefined || machine.nodeId === null || machine.nodeAddress === null) return;
    const { nodeId, nodeStatus, nodeAddress: address } = machine;
    if (nodeStatus !== null && includes(UNREACHABLE_STATUSES, nodeStatus))
      throw new Refusal("unavailable", nodeUnreachableText(nodeId, nodeStatus));
    const position = this.#positions.get(machineId);
    // An instance that came later is shown from its first line.
    const first = isFollowing ? LOG_TAIL_MAX : Math.max(1, this.#options.tail);
    const from = position === undefined || position === null ? { tail: first } : { after: position };
    const signal = this.answer.gone;
    const body = await openLogOnNode(link, { nodeId, address }, { machineId, from, isFollowing, signal });
    if (body === null) return;
    const messages = new LogMessages();
    let lines: Line[] = [];
    for await (const chunk of body) {
      for (const message of messages.push(chunk)) {
        if (!("next" in message)) lines.push({ machineId, ...message });
        else {
          this.#positions.set(machineId, message.next);
          await onLines(lines);
          lines = [];
        }
      }
    }
  }

  #event(id: string, line: LogLine): string {
    return appLogEvent(id, line, this.#options.format);
  }

  #remark(text: string): LogLine {
    return { at: this.#services.context.clock.now(), source: "node", text };
  }
}
