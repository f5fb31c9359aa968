/**
 * Copies a held machine's files to the target of its move, and continues after interruptions with what has
 * arrived.
 *
 * Always:
 * - Only the target says what is missing, so that a copy continues on any server. For a disk that was sent
 *   while the machine ran (early.ts), that is what has changed since.
 * - A machine that is stopped in another way meanwhile has discarded its memory: the copy continues without
 *   it.
 * - A node that does not answer for `patienceMs` without any byte having arrived ends the copy: the machine
 *   is stopped meanwhile.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { IncomingState, OutgoingMachine } from "@flotilla/contract/link/moves";
import {
  beginIncoming,
  ContentDiffers,
  describeOutgoing,
  type MoveCall,
  NotStopped,
  OlderCopy,
  relayPart,
} from "../link/moves.ts";
import type { NodeAddress } from "../link/node-link.ts";
import { NodeUnreachable } from "../link/refusals.ts";
import { type MachineRecord, nodeOf } from "../machines/record.ts";
import type { MachineServices } from "../machines/services.ts";
import { canLoad } from "./memory.ts";
import { hasRecordedRun } from "./store.ts";

export const RETRY_MS = 1_000;
/** More often than this, the source's disk or memory is faulty. */
export const CONTENT_TRIES_MAX = 3;

export interface CopyOptions {
  readonly say: (message: string) => void;
  readonly patienceMs: number;
}

/** Resolves when the target has every file. Throws a Refusal that says why it does not. */
export async function copyFiles(
  services: Pick<MachineServices, "context" | "link" | "nodeWaitMs" | "nodes">,
  machine: MachineRecord,
  call: MoveCall,
  { say, patienceMs }: CopyOptions,
): Promise<{ readonly bytes: number }> {
  const { clock } = services.context;
  const source = nodeOf(machine);
  const target = await nodeAddress(services, machine.moveNodeId);
  const state = { bytes: 0, movedAt: clock.monotonic(), differed: 0 };
  for (;;) {
    call.signal.throwIfAborted();
    try {
      const found = await describeOutgoing(services.link, source, call, { hasContent: true });
      const labels = (await services.nodes.find(target.nodeId))?.labels ?? {};
      const isLoadable = found.memory !== null && canLoad({ labels }, found.memory.format);
      const outgoing = { ...found, memory: isLoadable ? found.memory : null };
      const total = fileBytes(outgoing);
      if (!outgoing.isStopped) throw new NotStopped(`machine ${machine.id} is not stopped on node ${source.nodeId}`);
      if (isWithoutDisk(outgoing) && !(await hasRun(services, machine))) return { bytes: 0 };
      const { isMachine, awaited, point } = await begin(services, machine, target, call, outgoing);
      if (isMachine) return { bytes: state.bytes };
      for (const file of awaited) {
        const before = state.bytes;
        const onBytes = (bytes: number): void => {
          if (before + bytes > state.bytes) state.movedAt = clock.monotonic();
          state.bytes = before + bytes;
          say(`${file.name}: ${megabytes(state.bytes)} of ${megabytes(total)} MB`);
        };
        const isLatter = file.name === "disk" && point !== null && outgoing.points.includes(point);
        const part = { kind: "file", ...file, since: isLatter ? point : null } as const;
        await relayPart(services.link, { source, target }, call, part, { onBytes });
      }
      return { bytes: state.bytes };
    } catch (error) {
      call.signal.throwIfAborted();
      if (error instanceof ContentDiffers && (state.differed += 1) < CONTENT_TRIES_MAX) continue;
      if (error instanceof ContentDiffers) throw contentRefusal();
      const isTransient = error instanceof NodeUnreachable || error instanceof NotStopped;
      if (!isTransient || clock.monotonic() - state.movedAt > patienceMs) throw error;
      say(error.message);
    }
    await clock.sleep(RETRY_MS / 10, call.signal);
  }
}

export const contentRefusal = (): Refusal =>
  new Refusal("unavailable", `the copy is not what was sent, ${CONTENT_TRIES_MAX} times: check both hosts' disks`);

/** Has the target expect the machine. An earlier copy that it has is removed first. */
export async function begin(
  { link, nodeWaitMs }: Pick<MachineServices, "link" | "nodeWaitMs">,
  machine: MachineRecord,
  target: NodeAddress,
  call: MoveCall,
  { image, root, files, memory, memoryBase }: OutgoingMachine,
): Promise<IncomingState> {
  if (image === null || root === null)
    throw new Refusal("conflict", `machine ${machine.id} has no disk on node ${machine.nodeId}`);
  const incoming = { generation: machine.generation, image, root, files, memory, memoryBase };
  try {
    return await beginIncoming(link, target, call, incoming);
  } catch (error) {
    if (!(error instanceof OlderCopy)) throw error;
    // The row names another owner, so it is left over. Its generation is lower than that of this move.
    const desired = { generation: machine.generation - 1, state: "absent", spec: null } as const;
    await link.putMachine(target, machine.id, desired, { waitMs: nodeWaitMs, signal: call.signal });
    return await beginIncoming(link, target, call, incoming).catch((again: unknown) => {
      throw again instanceof OlderCopy ? new Refusal("conflict", again.message) : again;
    });
  }
}

const isWithoutDisk = ({ image, files }: OutgoingMachine): boolean => image === null && files.length === 0;

/** Also on a node that it has left. */
const hasRun = async (
  { context }: Pick<MachineServices, "context">,
  { id, observedBootId }: MachineRecord,
): Promise<boolean> => observedBootId !== null || (await hasRecordedRun(context.db, { machineId: id, nodeId: null }));

/**
 * Whether there is nothing to send of a machine that is stopped: its first start failed, or was stopped,
 * before it had a disk. One that has run had a disk, which is missed where it is not.
 */
export async function hasNothing(
  services: Pick<MachineServices, "context" | "link">,
  machine: MachineRecord,
  call: MoveCall,
): Promise<boolean> {
  if (await hasRun(services, machine)) return false;
  return isWithoutDisk(await describeOutgoing(services.link, nodeOf(machine), call, { hasContent: false }));
}

/** What a machine's own files take: its disk, its log and its memory, without the base of the disk. */
export const fileBytes = ({ files, memory }: Pick<OutgoingMachine, "files" | "memory">): number =>
  files.reduce((sum, { bytes }) => sum + bytes, (memory?.bytes ?? 0) + (memory?.base?.bytes ?? 0));

/** Where a node's agent is. Throws a Refusal when it is gone. */
export async function nodeAddress(
  { nodes }: Pick<MachineServices, "nodes">,
  nodeId: string | null,
): Promise<NodeAddress> {
  const node = nodeId === null ? undefined : await nodes.find(nodeId);
  if (node === undefined) throw new Refusal("unavailable", `node ${nodeId} was removed`);
  return { nodeId: node.id, address: node.address };
}

export const megabytes = (bytes: number): string => (bytes / 1e6).toFixed(0);
