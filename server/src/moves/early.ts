/**
 * Sends a machine's files to the target of its move while it still runs, so that little is left for the time
 * in which it does not: the bases of its disk and its memory, and its disk in rounds, each with what has
 * changed since the one before.
 *
 * Always:
 * - Nothing of the machine changes on its node or in its row. A machine whose files cannot be sent early
 *   moves as before.
 * - Only the nodes know what has arrived. Another server, or a second try, continues from the last complete
 *   round.
 * - A machine waits for its turn as long as it takes: it runs.
 * - Nodes that do not answer for `patienceMs` without a byte having arrived end the move before the machine
 *   is stopped.
 */
import { randomBytes } from "node:crypto";
import { messageOf } from "@flotilla/base/errors";
import type { MovedPart } from "@flotilla/contract/link/moved-parts";
import type { OutgoingMachine } from "@flotilla/contract/link/moves";
import { ContentDiffers, describeOutgoing, type MoveCall, NodeBusy, NotStopped, relayPart } from "../link/moves.ts";
import type { NodeAddress } from "../link/node-link.ts";
import { NodeUnreachable } from "../link/refusals.ts";
import { type MachineRecord, nodeOf } from "../machines/record.ts";
import type { MachineServices } from "../machines/services.ts";
import { begin, CONTENT_TRIES_MAX, contentRefusal, type CopyOptions, megabytes, RETRY_MS } from "./copy.ts";

const ROUNDS_MAX = 6;
/** How much is sent within the pause. */
const ROUND_BYTES_ENOUGH = 16 * 1024 * 1024;
/**
 * A round that is not this much smaller than the one before says that the machine writes as fast as it is
 * sent.
 */
const ROUND_SHRINKS = 0.7;
/** The machine has stopped, or its node cannot watch it. */
const REFUSALS_MAX = 3;

export interface EarlyCopy {
  readonly target: NodeAddress;
  readonly bytes: number;
  /**
   * What the target has of a machine that can be handed over while it runs; null: its memory is suspended
   * first.
   */
  readonly live: LivePoints | null;
}

/** Ids that both nodes know. */
export interface LivePoints {
  /** Point of the memory's rounds. */
  readonly point: string;
  readonly diskPoint: string;
}

export interface EarlyOptions extends CopyOptions {
  readonly movesMemory: boolean;
  /** Called with why the machine cannot be handed over while it runs. */
  readonly onNotLive: (reason: string) => void;
}

/**
 * Resolves with how much was sent; null: this machine's files cannot be sent early. Throws a Refusal when the
 * move cannot succeed.
 */
export async function copyEarly(
  services: Pick<MachineServices, "context" | "link" | "nodeWaitMs">,
  machine: MachineRecord,
  target: NodeAddress,
  call: MoveCall,
  { say, patienceMs, movesMemory, onNotLive }: EarlyOptions,
): Promise<EarlyCopy | null> {
  const { clock } = services.context;
  const state = { bytes: 0, movedAt: clock.monotonic(), differed: 0, refused: 0 };
  const onBytes = (before: number, name: string) => (bytes: number) => {
    if (before + bytes > state.bytes) state.movedAt = clock.monotonic();
    state.bytes = Math.max(state.bytes, before + bytes);
    say(`while it runs: ${name}: ${megabytes(state.bytes)} MB`);
  };
  const send = (part: MovedPart): Promise<number> => {
    const name = part.kind === "file" ? part.name : PART_NAMES[part.kind];
    const nodes = { source: nodeOf(machine), target };
    return relayPart(services.link, nodes, call, part, { onBytes: onBytes(state.bytes, name) });
  };
  const notEarly = (reason: string): null => {
    onNotLive(reason);
    return null;
  };
  for (;;) {
    call.signal.throwIfAborted();
    try {
      const found = await describeOutgoing(services.link, nodeOf(machine), call, { hasContent: true });
      if (!found.canSendEarly) return notEarly(`node ${machine.nodeId} cannot watch its disk`);
      const memoryBase = movesMemory ? found.memoryBase : null;
      const outgoing = { ...found, files: found.files.filter(({ name }) => name === "disk"), memoryBase };
      const { takesEarly, takesLive, awaited, point } = await begin(services, machine, target, call, outgoing);
      if (!takesEarly) return notEarly(`node ${target.nodeId} takes no files of a machine that runs`);
      for (const { name } of awaited)
        if (name === "root" || name === "memory-base") await send({ kind: "file", name, from: 0, since: null });
      const diskPoint = await sendDisk(send, point);
      const obstacle = takesLive ? obstacleOf(found, diskPoint) : `node ${target.nodeId} takes no machine that runs`;
      if (obstacle !== null) onNotLive(obstacle);
      const memoryPoint = movesMemory && obstacle === null ? await sendMemory(send, onNotLive) : null;
      const live = memoryPoint === null || diskPoint === null ? null : { point: memoryPoint, diskPoint };
      return { target, bytes: state.bytes, live };
    } catch (error) {
      call.signal.throwIfAborted();
      if (error instanceof ContentDiffers && (state.differed += 1) >= CONTENT_TRIES_MAX) throw contentRefusal();
      // It knows nothing of the point that the target has, and begins again, or it cannot be watched.
      if (error instanceof NotStopped && (state.refused += 1) >= REFUSALS_MAX) return notEarly(messageOf(error));
      if (error instanceof NodeBusy) state.movedAt = clock.monotonic();
      const isTransient = [NodeUnreachable, NotStopped, ContentDiffers, NodeBusy].some((kind) => error instanceof kind);
      if (!isTransient || clock.monotonic() - state.movedAt > patienceMs) throw error;
      say(messageOf(error));
    }
    await clock.sleep(RETRY_MS, call.signal);
  }
}

/** Why the memory of a running machine cannot be sent; null: it can. */
function obstacleOf({ canMoveLive }: OutgoingMachine, diskPoint: string | null): string | null {
  if (!canMoveLive) return "its node cannot watch its memory";
  return diskPoint === null ? "the node did not know what it had sent of its disk" : null;
}

type Send = (part: MovedPart) => Promise<number>;
/** What users see of it. */
const PART_NAMES = { diskRound: "disk", memoryRounds: "memory", rest: "rest" } as const;

/**
 * Resolves with the id of the rounds, which the source ends; null: the machine's memory cannot be sent while
 * it runs.
 */
async function sendMemory(send: Send, onNotLive: EarlyOptions["onNotLive"]): Promise<string | null> {
  const point = randomBytes(16).toString("hex");
  try {
    await send({ kind: "memoryRounds", point });
    return point;
  } catch (error) {
    onNotLive(messageOf(error));
    return null;
  }
}

/**
 * In rounds, from the last one that the target has. The node refuses one that it does not know: then
 * everything is sent. Resolves with the last point that both know.
 */
async function sendDisk(send: Send, reached: string | null): Promise<string | null> {
  let since = reached;
  let before = Number.POSITIVE_INFINITY;
  for (let round = 1; round <= ROUNDS_MAX; round += 1) {
    const point = randomBytes(16).toString("hex");
    const wasWhole = since === null;
    const bytes = await send({ kind: "diskRound", point, since }).catch((error: unknown) => {
      if (!(error instanceof NotStopped) || since === null) throw error;
      return null;
    });
    since = bytes === null ? null : point;
    if (bytes === null) continue;
    if (!wasWhole && (bytes <= ROUND_BYTES_ENOUGH || bytes > before * ROUND_SHRINKS)) return point;
    before = bytes;
  }
  return since;
}
