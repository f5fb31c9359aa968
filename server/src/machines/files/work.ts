/**
 * One operation on a file of a machine, from the caller's path to the node.
 *
 * Always: a stopped machine is started. The operation counts as use of the machine while it runs, and not as
 * a command. `..` in a path is resolved by name, as clients do in URLs: what was written to `a/../b` is read
 * from there also when there is no `a`.
 */
import { posix } from "node:path";
import { Refusal } from "@flotilla/contract/errors";
import { type FileCall, filesOnNode, type NodeFiles } from "../../link/files.ts";
import { NodeUnreachable, NodeRefused } from "../../link/refusals.ts";
import { nodeOf } from "../record.ts";
import { type InMachineOptions, inRunningMachine } from "../running.ts";
import type { MachineServices } from "../services.ts";
import { fileRefusal } from "./refusal.ts";

export interface FileTarget extends InMachineOptions {
  /** As the caller wrote it. */
  readonly path: string;
}

export interface Begun<T> {
  readonly value: T;
  /** Waits for the rest of the operation. Rejects with a Refusal where the node refuses. Call once. */
  readonly finish: <R>(rest: () => Promise<R>) => Promise<R>;
  /** The operation is over. `finish` calls it; calls after the first have no effect. */
  readonly end: () => void;
}

/** Begins an operation. Throws a Refusal when the machine does not run or the node refuses. */
export async function beginOnNode<T>(
  services: MachineServices,
  target: FileTarget,
  begin: (files: NodeFiles, call: FileCall) => Promise<T>,
): Promise<Begun<T>> {
  const { link, activity } = services;
  const { tenantId, id, signal } = target;
  const path = posix.normalize(`/${target.path}`);
  let nodeId = "";
  const refused = async (error: unknown): Promise<unknown> => {
    if (!(error instanceof NodeRefused)) return error;
    const refusal = fileRefusal(error, target.path) ?? new NodeUnreachable(nodeId, error);
    return refusal.code === "guest_unreachable" && (await hasLeft(services, id, nodeId)) ? interrupted(id) : refusal;
  };
  let hasEnded = false;
  const end = (): void => {
    if (!hasEnded) activity.execEnded(id, null, 0);
    hasEnded = true;
  };
  const value = await inRunningMachine(services, target, async (machine) => {
    const node = nodeOf(machine);
    nodeId = node.nodeId;
    activity.execBegan(id);
    try {
      return await begin(filesOnNode(link, node), { tenantId, machineId: id, path, signal });
    } catch (error) {
      activity.execEnded(id, null, 0);
      throw await refused(error);
    }
  });
  return {
    value,
    async finish(rest) {
      try {
        return await rest();
      } catch (error) {
        throw await refused(error);
      } finally {
        end();
      }
    },
    end,
  };
}

/** Whether the machine is being moved away from the node, or has been. */
async function hasLeft({ cache }: Pick<MachineServices, "cache">, id: string, nodeId: string): Promise<boolean> {
  const machine = await cache.readAny(id).catch(() => undefined);
  return machine !== undefined && (machine.moveId !== null || machine.nodeId !== nodeId);
}

const interrupted = (id: string): Refusal =>
  new Refusal(
    "unavailable",
    `machine ${id} moves to another node, which interrupted the transfer; repeat it: an incomplete upload changes nothing`,
  );

/** An operation that is complete with its answer. */
export async function onNode<T>(
  services: MachineServices,
  target: FileTarget,
  work: (files: NodeFiles, call: FileCall) => Promise<T>,
): Promise<T> {
  const { value, end } = await beginOnNode(services, target, work);
  end();
  return value;
}
