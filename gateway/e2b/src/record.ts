/**
 * What the gateway keeps of a sandbox, in the labels of its machine, and how clients see it. Pure.
 *
 * Always: everything that a sandbox is survives the gateway, because it is in the machine's record: its end
 * is the machine's ttl, and the rest is one JSON text, cut into labels of the length that they may have.
 */
import type { MachineInfo } from "@flotilla/sdk";
import { Refused } from "./refused.ts";
import { sandboxOf } from "./ids.ts";

/** The version whose behaviour this is: clients switch features on by it. */
const ENVD_VERSION = "0.6.4";
const MARK = "e2b";
const PIECE = "e2b.";
const PIECE_CHARACTERS = 250;
/** With the mark, below the number of labels that a machine may have. */
const PIECES_MAX = 28;
const NEVER = "9999-12-31T23:59:59Z";

export interface Facts {
  readonly template: string;
  /** From which the secret of its helper is made; clones have the same. */
  readonly seed: string;
  readonly metadata: Readonly<Record<string, string>>;
  readonly pausesAtEnd: boolean;
  /** Whether that pause keeps its memory. */
  readonly keepsMemory: boolean;
  readonly resumesByTraffic: boolean;
  readonly hasInternet: boolean;
  readonly isPublic: boolean;
  /** The Host that its ports see, with `${PORT}` for the port; null: the visitor's. */
  readonly hostMask: string | null;
}

/** What the server does at the end of its time. */
export const atEndOf = ({ pausesAtEnd, keepsMemory }: Facts): MachineInfo["atEnd"] =>
  pausesAtEnd ? (keepsMemory ? "suspend" : "stop") : "delete";

/** Throws a Refused for more than labels hold. */
export function labelsOf(facts: Facts): Record<string, string> {
  const text = JSON.stringify(facts);
  const pieces: string[] = [];
  for (let at = 0; at < text.length; ) {
    let end = Math.min(text.length, at + PIECE_CHARACTERS);
    // A pair of surrogates is one character.
    if (end < text.length && /[\uD800-\uDBFF]/.test(text[end - 1] ?? "")) end -= 1;
    pieces.push(text.slice(at, end));
    at = end;
  }
  if (pieces.length > PIECES_MAX)
    throw new Refused(400, `metadata is longer than the ${PIECES_MAX * PIECE_CHARACTERS} characters that are kept`);
  return { [MARK]: "sandbox", ...Object.fromEntries(pieces.map((piece, index) => [`${PIECE}${index}`, piece])) };
}

/** null: the machine is not a sandbox. */
export function factsOf({ labels }: Pick<MachineInfo, "labels">): Facts | null {
  if (labels[MARK] !== "sandbox") return null;
  let text = "";
  for (let index = 0; labels[`${PIECE}${index}`] !== undefined; index++) text += labels[`${PIECE}${index}`];
  try {
    return JSON.parse(text) as Facts;
  } catch {
    return null;
  }
}

/** Epoch milliseconds; null: it does not end by itself. */
export const endOf = ({ ttlSeconds, createdAt }: Pick<MachineInfo, "ttlSeconds" | "createdAt">): number | null =>
  ttlSeconds === null || ttlSeconds === 0 ? null : Date.parse(createdAt) + ttlSeconds * 1000;

/** The ttl of a machine that is to end at a time. */
export const ttlUntil = ({ createdAt }: Pick<MachineInfo, "createdAt">, endAt: number): number =>
  Math.max(1, Math.ceil((endAt - Date.parse(createdAt)) / 1000));

export type SandboxState = "running" | "paused";

export const stateOf = ({ state }: Pick<MachineInfo, "state">): SandboxState =>
  state === "started" || state === "creating" ? "running" : "paused";

/** The answer of create, connect and fork. */
export function sandboxView(machine: MachineInfo, facts: Facts, access: SandboxAccess) {
  return {
    templateID: facts.template,
    sandboxID: sandboxOf(machine.id),
    clientID: "flotilla",
    alias: facts.template,
    envdVersion: ENVD_VERSION,
    envdAccessToken: access.token,
    trafficAccessToken: access.trafficToken,
    domain: access.domain,
  };
}

export interface SandboxAccess {
  readonly token: string;
  readonly trafficToken: string | null;
  readonly domain: string;
}

/** An entry of a list. */
export function listedView(machine: MachineInfo, facts: Facts) {
  const endAt = endOf(machine);
  return {
    templateID: facts.template,
    sandboxID: sandboxOf(machine.id),
    clientID: "flotilla",
    alias: facts.template,
    startedAt: machine.createdAt,
    endAt: endAt === null ? NEVER : new Date(endAt).toISOString(),
    state: stateOf(machine),
    cpuCount: machine.resources.cpus,
    memoryMB: machine.resources.memoryMb,
    diskSizeMB: (machine.resources.diskGb ?? 0) * 1024,
    envdVersion: ENVD_VERSION,
    metadata: facts.metadata,
  };
}

export function detailView(machine: MachineInfo, facts: Facts, access: SandboxAccess) {
  return {
    ...listedView(machine, facts),
    envdAccessToken: access.token,
    domain: access.domain,
    allowInternetAccess: facts.hasInternet,
    network: {
      allowPublicTraffic: facts.isPublic,
      ...(facts.hostMask === null ? {} : { maskRequestHost: facts.hostMask }),
    },
    lifecycle: { autoResume: facts.resumesByTraffic, onTimeout: facts.pausesAtEnd ? "pause" : "kill" },
  };
}
