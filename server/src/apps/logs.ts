/**
 * The log of an app: the lines of all its instances, each with the instance it is of.
 *
 * Always:
 * - What there is comes in the order of its instants. A follower then gets each new line once, also of
 *   instances that are made later, until the app is destroyed or the caller disconnects.
 * - An instance whose node cannot be asked is named in a line of the control plane's own, and a follower gets
 *   its lines when the node is back. A rollout ends nothing.
 * - A cursor names places in the logs of the app's own instances; others in it are ignored.
 */
import type { Readable } from "node:stream";
import { mapAtMost } from "@flotilla/base/concurrency";
import { ownMessageOf } from "@flotilla/base/errors";
import { Refusal } from "@flotilla/contract/errors";
import { LOG_TAIL_MAX } from "@flotilla/contract/limits";
import type { LogLine, LogMark } from "@flotilla/contract/link/link";
import { StreamedAnswer } from "../api/streamed-answer.ts";
import { type NodeLog, type NodeLogQuery, openLogOnNode } from "../link/open-log.ts";
import { logEvent, markEvent } from "../machines/logs/lines.ts";
import { invalid, isPlainPart, type LogPart, type LogPlace } from "../machines/logs/part.ts";
import type { MachineServices } from "../machines/services.ts";
import { includes, UNREACHABLE_STATUSES } from "../machines/state.ts";
import { nodeUnreachableText } from "../machines/view.ts";
import { instanceId } from "./instances.ts";
import { type AppCursor, parseCursor, printCursor } from "./log-cursor.ts";
import { edgeOfAll, type LogSource, mergeBackward, type MergedLine, mergeForward, type ReadPart } from "./log-merge.ts";
import { requireApp } from "./reading.ts";
import { type AppName, type AppRecord, findAnyApp, listInstances } from "./store.ts";

/** Between two looks for new instances, and two attempts to reach a log. */
const PERIOD_MS = 1_000;
const READ_AT_A_TIME = 8;
/** How many lines of one instance are read together: more when instances are few. */
const BATCH_MIN = 25;
const BATCH_MAX = 200;
/** The most characters of the last lines, which are held until the first of them is known. */
const HELD_CHARACTERS_MAX = 8 * 1024 * 1024;
const WRITTEN_CHARACTERS = 64 * 1024;
/** A search that takes longer answers with what it has; its last cursor says how far it came. */
const SEARCH_MS_MAX = 20_000;

type LogServices = Pick<MachineServices, "cache" | "context" | "link">;

/** Throws a Refusal when there is no such app, or a cursor is not of its log. */
export async function logsOf(services: LogServices, name: AppName, part: LogPart): Promise<Readable> {
  const bounds = { start: boundOf("after", part.start), end: boundOf("before", part.end) };
  const app = await requireApp(services.context.db, name);
  const reading = new AppLog(services, app, { part, bounds });
  void reading.run();
  return reading.answer;
}

/** Where a part begins or ends in each log. */
type Bound = AppCursor | null;

function boundOf(field: string, place: LogPlace | null): Bound {
  if (place === null) return null;
  if ("time" in place) return { time: place.time, positions: new Map() };
  const cursor = parseCursor(place.cursor);
  if (cursor === null) throw invalid(field, "it is not a cursor of an app's log; send one as it was received");
  return cursor;
}

interface Line extends LogLine {
  readonly machineId: string;
}

interface ReadOptions {
  readonly part: LogPart;
  readonly bounds: { readonly start: Bound; readonly end: Bound };
}

class AppLog {
  readonly answer: StreamedAnswer;
  readonly #services: LogServices;
  readonly #app: AppRecord;
  readonly #part: LogPart;
  readonly #bounds: ReadOptions["bounds"];
  /** After the last line that was received of each machine; null: none yet. */
  readonly #positions = new Map<string, string | null>();
  /** Machines whose log is followed, until its end. */
  readonly #followed = new Map<string, Promise<void>>();
  /** Lines of the control plane's own that are not sent yet. */
  #remarks: Line[] = [];
  #lastAt: number;
  #marked = "";

  constructor(services: LogServices, app: AppRecord, { part, bounds }: ReadOptions) {
    const { clock } = services.context;
    this.#services = services;
    this.#app = app;
    this.#part = part;
    this.#bounds = bounds;
    this.#lastAt = bounds.start?.time ?? bounds.end?.time ?? clock.now();
    const last = (reason: string | null): string =>
      this.#event({
        machineId: app.id,
        ...this.#remark(reason ?? "the server stops; follow the log again to continue"),
      });
    this.answer = new StreamedAnswer(clock, part.isFollowing ? last : null, { isSilent: part.format === "plain" });
  }

  /** Never rejects. */
  async run(): Promise<void> {
    const { answer } = this;
    try {
      if (isPlainPart(this.#part)) await this.#existing(this.#part.tail ?? 0);
      else if (this.#part.tail === null) await this.#forward();
      else await this.#backward(this.#part.tail);
      while (this.#part.isFollowing && !answer.gone.aborted) {
        await answer.wait(PERIOD_MS);
        if (!(await this.#followNew())) break;
        await this.#mark();
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

  /** The last lines, also of nodes that know no parts of a log. */
  async #existing(tail: number): Promise<void> {
    let lines: Line[] = [];
    await mapAtMost(READ_AT_A_TIME, await this.#machines(), async (machineId) => {
      const own: Line[] = [];
      await this.#read(machineId, { isFollowing: false, onLines: async (more) => void own.push(...more) }).catch(
        (error: unknown) => void own.push(this.#unreadable(machineId, error)),
      );
      lines = [...lines, ...own].toSorted((one, other) => one.at - other.at).slice(-Math.max(1, tail));
    });
    if (tail === 0) return;
    for (const line of lines) await this.answer.write(this.#event(line));
  }

  /** The lines from the beginning of the part. */
  async #forward(): Promise<void> {
    const { limit, hasCursors } = this.#part;
    const merge = mergeForward(await this.#sources(limit));
    await merge.fill();
    const positions = () => merge.readings.map(({ machineId, position }) => [machineId, position] as const);
    if (hasCursors) {
      const edge = edgeOfAll(merge.readings.filter(({ hasLog }) => hasLog).map(({ beginEdge }) => beginEdge));
      const isCut = merge.readings.some((reading) => reading.isCut) ? true : undefined;
      await this.answer.write(markEvent(this.#cursor(positions()), { ...(edge && { edge }), ...(isCut && { isCut }) }));
    }
    const isLate = this.#deadline();
    let text = "";
    for (let left = limit ?? Number.POSITIVE_INFINITY; left > 0 && !isLate() && !this.answer.gone.aborted; left -= 1) {
      const next = await merge.next();
      text += this.#takeRemarks();
      if (next === null) break;
      text += this.#event(lineOf(next));
      this.#lastAt = next.line.at;
      if (text.length < WRITTEN_CHARACTERS) continue;
      await this.answer.write(text);
      text = "";
    }
    if (hasCursors) {
      const isEnd = merge.isOver && this.#bounds.end === null;
      text += markEvent(this.#cursor(positions()), isEnd ? { edge: "end" } : {});
    }
    await this.answer.write(text);
    this.#continueAt(positions());
  }

  /** The last lines of the part. */
  async #backward(tail: number): Promise<void> {
    const { hasCursors } = this.#part;
    const { start, end } = this.#bounds;
    const merge = mergeBackward(await this.#sources(tail));
    const isLate = this.#deadline();
    await merge.fill();
    const taken: Line[] = [];
    let held = 0;
    while (taken.length < tail && held < HELD_CHARACTERS_MAX && !isLate() && !this.answer.gone.aborted) {
      const next = await merge.next();
      if (next === null) break;
      taken.push(lineOf(next));
      held += next.line.text.length;
    }
    const { readings } = merge;
    const ends = readings.map(({ machineId, begin }) => [machineId, begin] as const);
    const newest = taken[0];
    this.#lastAt = taken.at(-1)?.at ?? this.#lastAt;
    if (hasCursors) {
      const starts = readings.map(({ machineId, position }) => [machineId, position] as const);
      const edges = readings.filter(({ hasLog }) => hasLog).map((reading) => reading.edge);
      const edge = merge.isOver && start === null ? edgeOfAll(edges) : undefined;
      await this.answer.write(markEvent(this.#cursor(starts), edge === undefined ? {} : { edge }));
    }
    await this.answer.write(this.#takeRemarks());
    for (const line of taken.toReversed()) await this.answer.write(this.#event(line));
    this.#lastAt = end?.time ?? newest?.at ?? this.#services.context.clock.now();
    if (hasCursors) await this.answer.write(markEvent(this.#cursor(ends), end === null ? { edge: "end" } : {}));
    this.#continueAt(ends);
  }

  async #sources(count: number | null): Promise<readonly LogSource[]> {
    const machines = await this.#machines();
    const share = Math.ceil((2 * (count ?? BATCH_MAX)) / Math.max(1, machines.length));
    const batch = Math.min(Math.max(share, BATCH_MIN), BATCH_MAX);
    return machines.map((machineId) => ({
      machineId,
      batch,
      query: this.#partOf(machineId),
      read: (query) =>
        this.#readPart(machineId, query).catch((error: unknown) => {
          if (!this.answer.gone.aborted) this.#remarks.push(this.#unreadable(machineId, error));
          return null;
        }),
    }));
  }

  /** The part in the log of one machine. */
  #partOf(machineId: string): NodeLogQuery {
    const { start, end } = this.#bounds;
    const { search } = this.#part;
    const after = start?.positions.get(machineId);
    const before = end?.positions.get(machineId);
    return {
      ...(start === null ? {} : after === undefined ? { since: start.time } : { after }),
      ...(end === null ? {} : before === undefined ? { until: end.time } : { before }),
      ...(search === "" ? {} : { search }),
    };
  }

  async #readPart(machineId: string, query: NodeLogQuery): Promise<ReadPart | null> {
    const body = await this.#open(machineId, query, false);
    if (body === null) return null;
    const lines: LogLine[] = [];
    let first: LogMark | null = null;
    let last: LogMark | null = null;
    for await (const messages of body) {
      for (const message of messages) {
        if (!("next" in message)) lines.push(message);
        else {
          first ??= message;
          last = message;
        }
      }
    }
    return first === null || last === null ? null : { lines, first, last };
  }

  #deadline(): () => boolean {
    const { clock } = this.#services.context;
    const until = this.#part.search === "" ? Number.POSITIVE_INFINITY : clock.monotonic() + SEARCH_MS_MAX;
    return () => clock.monotonic() > until;
  }

  #continueAt(positions: readonly (readonly [string, string | null])[]): void {
    for (const [machineId, position] of positions) this.#positions.set(machineId, position);
    this.#marked = this.#cursor(this.#positions);
  }

  #cursor(positions: Iterable<readonly [string, string | null]>): string {
    const known = [...positions].filter((each): each is [string, string] => each[1] !== null);
    return printCursor(this.#lastAt, known);
  }

  /** After new lines: where all logs are. */
  async #mark(): Promise<void> {
    if (!this.#part.hasCursors) return;
    const cursor = this.#cursor(this.#positions);
    if (cursor === this.#marked) return;
    this.#marked = cursor;
    await this.answer.write(markEvent(cursor));
  }

  /** Follows the machines that are not followed. false: the app is destroyed, and none is left. */
  async #followNew(): Promise<boolean> {
    const { db } = this.#services.context;
    let machines: readonly string[];
    try {
      machines = await this.#machines();
      if (machines.length === 0 && ((await findAnyApp(db, this.#app.id))?.isDestroyed ?? true)) return false;
    } catch {
      // The database is unavailable for a while; what is followed continues.
      return true;
    }
    for (const machineId of machines) {
      if (this.#followed.has(machineId)) continue;
      const onLines = async (lines: readonly Line[]): Promise<void> => {
        this.#lastAt = Math.max(this.#lastAt, lines.at(-1)?.at ?? 0);
        await this.answer.write(lines.map((line) => this.#event(line)).join(""));
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
    const body = await this.#open(machineId, this.#queryAt(machineId, isFollowing), isFollowing);
    if (body === null) return;
    let lines: Line[] = [];
    for await (const messages of body) {
      for (const message of messages) {
        if (!("next" in message)) lines.push({ machineId, ...message });
        else {
          // A mark comes after the lines, because they are written before anything is awaited.
          this.#positions.set(machineId, message.next);
          await onLines(lines);
          lines = [];
        }
      }
    }
  }

  /** What follows the lines of a machine that were received. */
  #queryAt(machineId: string, isFollowing: boolean): NodeLogQuery {
    const position = this.#positions.get(machineId) ?? null;
    if (isPlainPart(this.#part)) {
      // An instance that came later is shown from its first line.
      const first = isFollowing ? LOG_TAIL_MAX : Math.max(1, this.#part.tail ?? 0);
      return position === null ? { tail: first } : { after: position };
    }
    const { search, after, since = 0 } = this.#partOf(machineId);
    const start = position ?? after;
    return { ...(start === undefined ? { since } : { after: start }), ...(search && { search }), marks: 1 };
  }

  /** null: no node has its log. Throws a Refusal when its node does not answer. */
  async #open(machineId: string, query: NodeLogQuery, isFollowing: boolean): Promise<NodeLog | null> {
    const { cache, link } = this.#services;
    const name = { tenantId: this.#app.tenantId, id: machineId };
    const machine = cache.current(name) ?? (await cache.read(name));
    if (machine === undefined || machine.nodeId === null || machine.nodeAddress === null) return null;
    const { nodeId, nodeStatus, nodeAddress: address } = machine;
    if (nodeStatus !== null && includes(UNREACHABLE_STATUSES, nodeStatus))
      throw new Refusal("unavailable", nodeUnreachableText(nodeId, nodeStatus));
    const signal = this.answer.gone;
    return await openLogOnNode(link, { nodeId, address }, { machineId, query, isFollowing, signal });
  }

  #event({ machineId, ...line }: Line): string {
    const { format, hasCursors } = this.#part;
    const cursor = hasCursors && line.from !== undefined ? printCursor(line.at, [[machineId, line.from]]) : undefined;
    return logEvent(line, format, { instanceId: instanceId(machineId), cursor });
  }

  #takeRemarks(): string {
    return this.#remarks.splice(0).reduce((text, line) => text + this.#event(line), "");
  }

  #unreadable(machineId: string, error: unknown): Line {
    return { machineId, ...this.#remark(`its log cannot be read: ${ownMessageOf(error)}`) };
  }

  #remark(text: string): LogLine {
    return { at: this.#services.context.clock.now(), source: "node", text };
  }
}

const lineOf = ({ machineId, line }: MergedLine): Line => ({ machineId, ...line });
