/**
 * Reads what nodes report, with suspicion: a node is another machine, run by whoever has its credential.
 *
 * Pure. Always: what comes out has the shapes of contract/src/link.ts, with bounded numbers and without characters
 * that the database cannot hold; unknown fields are dropped; a report that does not fit is refused as a whole.
 */
import { imageFaultOf, Refusal } from "@flotilla/contract/errors";
import {
  type EndedRun,
  type Heartbeat,
  type NodeEvent,
  type NodeResources,
  OBSERVED_STATES,
  type ObservedMachine,
} from "@flotilla/contract/link";
import { EVENT_LEVELS, type StartTimings, VM_ORIGINS } from "@flotilla/contract/machines";

const GENERATION_MAX = 2_000_000_000;
const TEXT_CHARACTERS_MAX = 4_000;
const PORTS_MAX = 64;
/** The latest instant that a Date can hold. */
const EPOCH_MS_MAX = 8.64e15;

/** What a node said does not have the agreed shape. */
export class Misfit extends Error {}

type Fields = Readonly<Record<string, unknown>>;

function fields(value: unknown, what: string): Fields {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw new Misfit(`${what}: expected an object`);
  return value as Fields;
}

function number(value: unknown, what: string, max: number): number {
  if (typeof value !== "number" || !(value >= 0)) throw new Misfit(`${what}: expected a number from 0`);
  return Math.min(value, max);
}

const whole = (value: unknown, what: string, max = GENERATION_MAX): number => Math.floor(number(value, what, max));

/** Bounded, and without what PostgreSQL refuses. */
function text(value: unknown, what: string): string {
  if (typeof value !== "string") throw new Misfit(`${what}: expected text`);
  return value.slice(0, TEXT_CHARACTERS_MAX).replaceAll("\0", "").toWellFormed();
}

const textOrNull = (value: unknown, what: string): string | null =>
  value === null || value === undefined ? null : text(value, what);

const instantOrNull = (value: unknown, what: string): number | null =>
  value === null || value === undefined ? null : number(value, what, EPOCH_MS_MAX);

function word<const T extends string>(value: unknown, words: readonly T[], what: string): T {
  const found = words.find((item) => item === value);
  if (found === undefined) throw new Misfit(`${what}: expected one of ${words.join(", ")}`);
  return found;
}

function list<T>(value: unknown, what: string, read: (item: unknown) => T): readonly T[] {
  if (!Array.isArray(value)) throw new Misfit(`${what}: expected a list`);
  return value.map(read);
}

function observedMachine(value: unknown): ObservedMachine {
  const report = fields(value, "machine");
  const machineId = text(report["machineId"], "machineId");
  if (!/^mach-[0-9a-f]{32}$/.test(machineId)) throw new Misfit("machineId: expected mach- and 32 hex digits");
  return {
    machineId,
    generation: whole(report["generation"], "generation"),
    state: word(report["state"], OBSERVED_STATES, "state"),
    bootId: textOrNull(report["bootId"], "bootId"),
    runningSince: instantOrNull(report["runningSince"], "runningSince"),
    // A node of an earlier version looks at no ports, and says nothing of it.
    readySince: instantOrNull(
      report["readySince"] === undefined ? report["runningSince"] : report["readySince"],
      "readySince",
    ),
    reason: textOrNull(report["reason"], "reason"),
    // A node of another version may say nothing of it, or have another word.
    reasonCode: imageFaultOf(report["reasonCode"]),
    hasPoweredOff: report["hasPoweredOff"] === true,
    lastRun: endedRun(report["lastRun"]),
    progress: textOrNull(report["progress"], "progress"),
    hostPorts: list(report["hostPorts"] ?? [], "hostPorts", hostPort).slice(0, PORTS_MAX),
    timings: timings(report["timings"]),
  };
}

/** A node of an earlier version says nothing of it. */
function endedRun(value: unknown): EndedRun | null {
  if (value === null || value === undefined) return null;
  const run = fields(value, "lastRun");
  return {
    bootId: text(run["bootId"], "lastRun.bootId"),
    startedAt: number(run["startedAt"], "lastRun.startedAt", EPOCH_MS_MAX),
    endedAt: number(run["endedAt"], "lastRun.endedAt", EPOCH_MS_MAX),
  };
}

function hostPort(value: unknown): { port: number; hostPort: number } {
  const published = fields(value, "hostPorts");
  return { port: whole(published["port"], "port", 65_535), hostPort: whole(published["hostPort"], "hostPort", 65_535) };
}

function timings(value: unknown): StartTimings | null {
  if (value === null || value === undefined) return null;
  const given = fields(value, "timings");
  const names = ["imageMs", "diskMs", "bootMs", "configureMs", "totalMs"] as const;
  const known = names.filter((name) => typeof given[name] === "number");
  const spans: Partial<Record<(typeof names)[number], number>> = {};
  for (const name of known) spans[name] = number(given[name], name, GENERATION_MAX);
  const vm = given["vm"] === undefined ? {} : { vm: word(given["vm"], VM_ORIGINS, "vm") };
  return { ...vm, ...spans };
}

/** A node's answer about one machine. Throws an Error when it is about another one or does not fit. */
export function parseObservedMachine(value: unknown, machineId: string): ObservedMachine {
  const observed = observedMachine(value);
  if (observed.machineId !== machineId) throw new Misfit(`expected machine ${machineId}, got ${observed.machineId}`);
  return observed;
}

function nodeEvent(value: unknown): NodeEvent {
  const event = fields(value, "event");
  return {
    sequence: whole(event["sequence"], "sequence", Number.MAX_SAFE_INTEGER),
    machineId: text(event["machineId"], "machineId"),
    level: word(event["level"], EVENT_LEVELS, "level"),
    message: text(event["message"], "message"),
    at: number(event["at"], "at", EPOCH_MS_MAX),
  };
}

function resources(value: unknown): NodeResources {
  const given = fields(value, "resources");
  const amount = (name: keyof NodeResources): number => whole(given[name], name);
  return {
    totalCpus: amount("totalCpus"),
    totalMemoryMb: amount("totalMemoryMb"),
    availableMemoryMb: amount("availableMemoryMb"),
    totalDiskGb: amount("totalDiskGb"),
    availableDiskGb: amount("availableDiskGb"),
    usedCpus: number(given["usedCpus"], "usedCpus", GENERATION_MAX),
    usedMemoryMb: amount("usedMemoryMb"),
    usedDiskGb: amount("usedDiskGb"),
  };
}

/** The body of a heartbeat. Throws a Refusal that says what does not fit. */
export function parseHeartbeat(value: unknown): Heartbeat {
  try {
    const heartbeat = fields(value, "heartbeat");
    return {
      bootId: text(heartbeat["bootId"], "bootId"),
      isComplete: heartbeat["isComplete"] === true,
      resources: resources(heartbeat["resources"]),
      machines: list(heartbeat["machines"], "machines", observedMachine),
      events: list(heartbeat["events"], "events", nodeEvent),
    };
  } catch (error) {
    if (error instanceof Misfit) throw new Refusal("invalid_body", `heartbeat does not fit: ${error.message}`);
    throw error;
  }
}
