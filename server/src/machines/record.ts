/**
 * A machine as the server has it: its row, and the needed columns of its node's row.
 *
 * Types, and the conversion to the specification for a node. Instants are epoch milliseconds.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { MachineHook, MachineHooks } from "@flotilla/contract/hooks";
import { HOOK_TIMEOUT_DEFAULT_SECONDS } from "@flotilla/contract/limits";
import type { GuestHook, MachineHealthCheck, MachineSpec } from "@flotilla/contract/link/link";
import type { Disruption, MachineEnd, MachineNetwork, MachineSource, Restart } from "@flotilla/contract/machines";
import type { NodeAddress } from "../link/node-link.ts";
import type { MutableMachine } from "./change.ts";
import type { MachineNodeStatus } from "./state.ts";
import type { Secrets } from "../secrets.ts";

/**
 * The request at creation, with defaults filled in; only what update.ts names changes, and what a branch
 * takes from its source when it adopts (branches/adopt-store.ts).
 */
export interface MachineDescription {
  readonly name: string | null;
  readonly source: StoredSource;
  readonly network: MachineNetwork;
  readonly env: Readonly<Record<string, string>>;
  /** The names of the secret variables. */
  readonly secretNames: readonly string[];
  /** Their values, encrypted; null: there are none. */
  readonly secretEnv: Buffer | null;
  readonly command: readonly string[] | null;
  readonly ports: readonly { readonly port: number }[];
  readonly labels: Readonly<Record<string, string>>;
  readonly workdir: string | null;
  readonly cpus: number;
  readonly memoryMb: number;
  readonly diskGb: number;
  readonly isEphemeral: boolean;
  readonly isPublic: boolean;
  readonly isBranchable: boolean;
  readonly autoStopSeconds: number | null;
  readonly ttlSeconds: number | null;
  readonly atEnd: MachineEnd;
  readonly restart: Restart;
  /** What a move does to it while it runs. */
  readonly disruption: Disruption;
  /** Labels that its node must have. */
  readonly nodeLabels: Readonly<Record<string, string>>;
  /** How its node checks it; null: it does not, as every machine that no app owns. */
  readonly health: MachineHealthCheck | null;
  /** Commands that it runs at moments of its life; null: none. */
  readonly hooks: MachineHooks | null;
  /** null: it begins with its image. */
  readonly origin: MachineOrigin | null;
}

/** What a machine is made from, as its owner wrote it. */
export interface StoredSource extends MachineSource {
  /**
   * What nodes pull for a package, with the digest that its name meant when the machine was created. Absent:
   * the reference.
   */
  readonly pulledAs?: string;
}

/** What nodes call that which a machine is made from. */
export const pulledAs = ({ pulledAs: pulled, reference }: StoredSource): string => pulled ?? reference;

/** The branch that a machine begins as. */
export interface MachineOrigin {
  /** Which machine was branched. It may be gone. */
  readonly machineId: string;
  /** The instant of it. */
  readonly pointId: string;
  /** The node that has the point. */
  readonly nodeId: string;
  /** Whether it begins with that memory, so that its processes continue. */
  readonly hasMemory: boolean;
  /** It has taken the place of that machine, whose name is `keptAs` since then; null: that was deleted. */
  readonly adopted?: { readonly keptAs: string | null };
}

/** Identifies a machine for its owner: another tenant's id finds no machine. */
export interface MachineName {
  readonly tenantId: string;
  readonly id: string;
}

export interface MachineRecord extends MachineDescription, MutableMachine {
  readonly tenantId: string;
  /** Its name below the domain for machines (hosts/), or its id. */
  readonly hostName: string;
  readonly createdBy: string | null;
  readonly createdAt: number;
  readonly updatedAt: number;
  readonly lastActivityAt: number | null;
  readonly deletedAt: number | null;
  /** The node to which `moveId` moves it; null exactly when that is. */
  readonly moveNodeId: string | null;
  /**
   * `on`: another machine may replace it. `lifting`: it was given to a user, and its node has not confirmed
   * that yet.
   */
  readonly fence: "on" | "lifting" | null;
  /** The operation of its last completed move. */
  readonly movedBy: string | null;
  readonly nodeStatus: MachineNodeStatus | null;
  readonly nodeAddress: string | null;
}

/** The node that runs it. Throws a Refusal when the machine has no node, or the node has no known address. */
export function nodeOf({ id, nodeId, nodeAddress }: MachineRecord): NodeAddress {
  if (nodeId === null || nodeAddress === null)
    throw new Refusal("unavailable", `the node of machine ${id} is unknown; start the machine again`);
  return { nodeId, address: nodeAddress };
}

/** The specification for its node. */
export function specOf(machine: MachineRecord, secrets: Pick<Secrets, "open">): MachineSpec {
  const secretEnv = machine.secretEnv === null ? {} : secrets.open(machine.id, machine.secretEnv);
  return {
    machineId: machine.id,
    tenantId: machine.tenantId,
    hostname: hostnameOf(machine),
    image: imageOf(machine.source),
    cpus: machine.cpus,
    memoryMb: machine.memoryMb,
    diskGb: machine.diskGb,
    network: machine.network,
    env: { ...machine.env, ...secretEnv },
    workdir: machine.workdir,
    command: machine.command,
    ports: machine.ports,
    restart: machine.restart,
    disruption: machine.disruption,
    health: machine.health,
    ...pointOf(machine),
    ...hooksOf(machine),
  };
}

const imageOf = (source: StoredSource): MachineSpec["image"] => ({
  ...{ reference: pulledAs(source), arch: source.arch ?? null },
  ...(source.type === "smolmachine" ? { isPackage: true } : {}),
});

/** The point that its disk is made from; absent: it is made from its image. */
const pointOf = ({ origin }: MachineRecord): Pick<MachineSpec, "point"> =>
  origin === null ? {} : { point: { pointId: origin.pointId, hasMemory: origin.hasMemory } };

const hooksOf = ({ hooks }: MachineRecord): Pick<MachineSpec, "hooks"> =>
  hooks === null
    ? {}
    : { hooks: Object.fromEntries(Object.entries(hooks).map(([moment, hook]) => [moment, guestHook(hook)])) };

const guestHook = ({ command, timeoutSecs = HOOK_TIMEOUT_DEFAULT_SECONDS }: MachineHook): GuestHook => ({
  command,
  timeoutMs: timeoutSecs * 1000,
});

/** The name as a host name, where it can be one; else the first part of the id. */
function hostnameOf(machine: MachineRecord): string {
  const name = (machine.name ?? "")
    .toLowerCase()
    .replace(/[^a-z0-9-]+/g, "-")
    .replace(/^-+|-+$/g, "");
  return name === "" ? machine.id.slice(0, 17) : name;
}
