/**
 * The types of events, each with its level, the schema of its data and the sentence printed from them.
 *
 * Always:
 * - A type is `<subject>.<what happened>` and stays once it is released; its data may only get more fields.
 * - Level and message of an event follow from its type and data (`printEvent`); no program parses a message.
 * - Each type is written somewhere (test/house/event-types.test.ts), and a writer names a type of the table.
 *
 * A new event is one line here and the call that writes it. The node agent imports only types of this file.
 */
import { renderMicros } from "@flotilla/base/money";
import type { TObject, TProperties } from "typebox";
import { HOOK_MOMENTS } from "./hooks.ts";
import { BUDGET_POLICIES, type BudgetPolicy } from "./plans.ts";
import { int64, oneOf, type Static, timestamp, Type, typePattern } from "./schema.ts";
import { renderGb } from "./traffic.ts";

export const EVENT_LEVELS = ["info", "warn", "error"] as const;
export type EventLevel = (typeof EVENT_LEVELS)[number];

/** Facts of nodes are texts, numbers and flags. */
const is = <const P extends TProperties>(
  level: EventLevel,
  properties: P,
  message: (data: Static<TObject<P>>) => string,
) => ({ level, data: Type.Object(properties), message });

const text = Type.String();
const number = Type.Number();
/** A text for the machine's owner. */
const reason = { reason: text };
const node = { nodeId: text };

/** One of the commands that ended at about the same time. */
const ENDED_EXEC = Type.Object({ exitCode: number, durationMs: number, endedAt: timestamp() });

const MEMORY_LOSS_CAUSES = ["resumeFailed", "vmEnded", "vmSilent", "cannotMove", "moveFailed"] as const;

/** The sentences of causes for which a machine boots although its memory was to be kept. */
const MEMORY_LOSSES: Readonly<Record<(typeof MEMORY_LOSS_CAUSES)[number], (detail: string) => string>> = {
  resumeFailed: (detail) => `the memory of the suspended machine was lost, and it boots: ${detail}`,
  vmEnded: () => "the memory of the machine was lost: its VM ended while it was paused for a move",
  vmSilent: (detail) =>
    `the memory of the machine was lost: its VM was paused for a move and does not answer: ${detail}`,
  cannotMove: (detail) => `the memory of the machine was lost, and it boots: ${detail}`,
  moveFailed: () => "the memory of the machine was lost, and it boots: it could not be moved to the other node",
};

/** Money in micros. */
interface BudgetUse {
  readonly percent: number;
  readonly usedMicros: number;
  readonly budgetMicros: number;
  readonly heldMicros: number;
  readonly policy: BudgetPolicy;
}

const BUDGET_CONSEQUENCES: Readonly<Record<BudgetPolicy, string>> = {
  none: "",
  notify: "",
  block: "; creates and starts of machines are refused until the month ends",
  stop: "; creates and starts of machines are refused until the month ends, and running machines are stopped",
};

function budgetText({ percent, usedMicros, budgetMicros, heldMicros, policy }: BudgetUse): string {
  const held = heldMicros === 0 ? "" : `, with ${renderMicros(heldMicros)} held for running machines`;
  const consequence = percent === 100 ? BUDGET_CONSEQUENCES[policy] : "";
  const used = `${renderMicros(usedMicros)} of ${renderMicros(budgetMicros)}`;
  return `${percent} % of the monthly budget is used${heldMicros === 0 ? "" : " or held"}: ${used}${held}${consequence}`;
}

export const EVENTS = {
  "machine.created": is("info", {}, () => "machine created"),
  "machine.started": is("info", {}, () => "machine started"),
  "machine.stopped": is("info", {}, () => "machine stopped"),
  "machine.suspended": is("info", {}, () => "machine suspended: its memory is kept"),
  "machine.poweredOff": is("info", {}, () => "machine stopped: the guest powered itself off"),
  "machine.deleted": is("info", {}, () => "machine deleted"),
  "machine.startFailed": is("error", { ...reason, isAutomatic: Type.Boolean() }, (data) => {
    return `${data.isAutomatic ? "auto-start" : "start"} failed: ${data.reason}`;
  }),
  "machine.failed": is("error", reason, (data) => `machine failed: ${data.reason}`),
  "machine.abandoned": is("error", reason, (data) => data.reason),
  "machine.suspendRefused": is("warn", reason, (data) => `machine could not be suspended and runs on: ${data.reason}`),
  "machine.autoStopped": is("info", { idleSeconds: number }, (data) => {
    return `auto-stop: the machine was idle for ${data.idleSeconds} s`;
  }),
  "machine.ttlReached": is("info", { ttlSeconds: number }, (data) => {
    return `its ttl of ${data.ttlSeconds} s is over: the machine is suspended or stopped`;
  }),
  "machine.stoppedForTenant": is("info", reason, (data) => `stopped: ${data.reason}`),
  "machine.restored": is("warn", { state: text }, (data) => {
    return `the control plane was restored from a backup; the machine is as on its node: ${data.state}`;
  }),
  "machine.shared": is("info", {}, () => "share link made"),
  "machine.unshared": is("info", {}, () => "share link ended"),
  "machine.execEnded": is("info", { exitCode: number, durationMs: number }, (data) => {
    return `exec ended with exit code ${data.exitCode} after ${data.durationMs} ms`;
  }),
  "machine.execsEnded": is("info", { count: number, failed: number, execs: Type.Array(ENDED_EXEC) }, (data) => {
    return `${data.count} execs ended, ${data.failed} of them with an exit code other than 0`;
  }),
  "machine.branched": is("info", { count: number, pausedMs: number }, (data) => {
    return `branched into ${data.count}; it was paused for ${Math.round(data.pausedMs)} ms`;
  }),
  "machine.isBranch": is("info", { from: text }, (data) => `continues as machine ${data.from} was`),
  "machine.hookFailed": is("warn", { hook: oneOf(HOOK_MOMENTS), ...reason }, (data) => {
    return `the ${data.hook} hook ${data.reason}`;
  }),
  "machine.checkpointed": is(
    "info",
    { checkpointId: text, hasMemory: Type.Boolean(), pausedMs: number },
    ({ checkpointId, hasMemory, pausedMs }) => {
      const what = hasMemory ? "with its memory" : "without its memory";
      const pause = pausedMs === 0 ? "it did not run" : `it was paused for ${Math.round(pausedMs)} ms`;
      return `kept as checkpoint ${checkpointId}, ${what}; ${pause}`;
    },
  ),
  "machine.fromCheckpoint": is("info", { checkpointId: text }, (data) => `made from checkpoint ${data.checkpointId}`),
  "machine.adopted": is("info", { from: text, by: text, name: text }, (data) => {
    return `machine ${data.by} took the place of machine ${data.from}: the name ${data.name}, its url, ports and share link`;
  }),
  "machine.claimed": is("info", { poolId: text }, (data) => `claimed from pool ${data.poolId}`),

  "machine.moveBegun": is("info", { from: text, to: text, how: text }, (data) => {
    return `moving from node ${data.from} to node ${data.to}${data.how}`;
  }),
  "machine.moved": is("info", { from: text, to: text }, (data) => `moved from node ${data.from} to node ${data.to}`),
  "machine.moveEnded": is("warn", node, (data) => {
    return `the move was ended; the machine is on node ${data.nodeId} as before`;
  }),
  "machine.memoryLeft": is("warn", reason, (data) => {
    return `machine is moved without its memory, and boots on the other node: ${data.reason}`;
  }),
  "machine.memoryLost": is("warn", { cause: oneOf(MEMORY_LOSS_CAUSES), detail: text }, (data) => {
    return MEMORY_LOSSES[data.cause](data.detail);
  }),
  "machine.memoryDiscarded": is("info", {}, () => "the memory of the suspended machine was discarded"),
  "machine.resumed": is("info", { suspendedAt: Type.String({ format: "date-time" }) }, (data) => {
    return `resumed with the memory of ${data.suspendedAt}`;
  }),
  "machine.hostSuspended": is("info", {}, () => {
    return "suspended, because its host is about to go down; it is resumed when the host is back";
  }),
  "machine.drained": is("warn", node, (data) => {
    return `stopped because node ${data.nodeId} is drained; its disk stays there`;
  }),

  "machine.nodeLost": is("warn", node, (data) => {
    return `node ${data.nodeId} does not report; the machine is shown again when the node is back`;
  }),
  "machine.nodeMaintained": is("info", node, (data) => {
    return `node ${data.nodeId} is under maintenance; the machine is shown again when the node is back`;
  }),
  "machine.nodeReturned": is("info", node, (data) => `node ${data.nodeId} reports again`),
  "machine.replacementHeld": is("warn", reason, (data) => {
    return `the node of this machine does not report, and the machine is not replaced: ${data.reason}`;
  }),

  "machine.imagePullBegun": is("info", { reference: text }, (data) => `pulling image ${data.reference}`),
  "machine.imagePulled": is("info", { reference: text, seconds: number }, (data) => {
    return `image ${data.reference} is on the node, after ${data.seconds.toFixed(1)} s`;
  }),
  "machine.crashed": is("warn", { ...reason, restartSeconds: number }, (data) => {
    return `${data.reason}; the machine is restarted${data.restartSeconds === 0 ? "" : ` in ${data.restartSeconds} s`}`;
  }),
  "machine.vmmEnded": is("warn", { cause: oneOf(["output"]), bytes: number }, ({ bytes }) => {
    return `its VMM was ended: it printed ${bytes} bytes within a minute, as a guest that misuses its devices makes it do`;
  }),
  "machine.fenced": is("warn", reason, (data) => data.reason),
  "machine.outOfMemory": is("warn", { program: text, count: number }, ({ program, count }) => {
    const name = program === "" ? "a process" : `the process "${program}"`;
    const others = count === 1 ? "" : ` and ${count - 1} more`;
    return `the machine is out of memory: its kernel killed ${name}${others}`;
  }),
  "machine.forced": is("warn", reason, (data) => {
    return `the machine did not shut down cleanly and was ended: ${data.reason}`;
  }),
  "machine.unresponsive": is("warn", {}, () => {
    return "the machine's agent does not answer, and its commands were ended; after minutes it counts as crashed";
  }),
  "machine.responsive": is("info", { seconds: number }, (data) => {
    return `the machine's agent answers again: it did not for ${data.seconds} s`;
  }),
  "machine.paused": is("warn", reason, (data) => `the machine is paused: ${data.reason}`),
  "machine.continued": is("info", { seconds: number }, (data) => {
    return `the machine continues: it was paused for ${data.seconds} s, and its host's disk is written again`;
  }),
  "machine.vmmReplaced": is("info", { pauseMs: number }, (data) => {
    return `its VMM was replaced by one of the installed program; it was paused for ${data.pauseMs} ms`;
  }),
  "machine.recovered": is("warn", reason, (data) => {
    return `${data.reason}; the machine was recovered, and its disk is unchanged`;
  }),
  "machine.egressDenied": is("warn", { detail: text }, (data) => `egress denied ${data.detail}`),
  "machine.workloadEnded": is("info", {}, () => "the workload ended with exit code 0"),
  "machine.workloadFailed": is("warn", { exitCode: number }, (data) => {
    return `the workload ended with exit code ${data.exitCode}`;
  }),

  "app.deployBegun": is("info", { release: number, strategy: text, why: text }, ({ release, strategy, why }) => {
    return `release ${release} is rolled out (${strategy}): ${why}`;
  }),
  "app.deployed": is("info", { release: number, ...reason }, (data) => {
    return `release ${data.release} was rolled out: ${data.reason}`;
  }),
  "app.rolledBack": is("error", { release: number, to: number, ...reason }, (data) => {
    return `release ${data.release} was rolled back, and release ${data.to} serves: ${data.reason}`;
  }),
  "app.deployFailed": is("error", { release: number, ...reason }, (data) => {
    return `release ${data.release} could not be rolled out, and there is none before it: ${data.reason}`;
  }),
  "app.superseded": is("info", { release: number, ...reason }, (data) => {
    return `the rollout of release ${data.release} was ended: ${data.reason}`;
  }),
  "app.promoted": is("info", { release: number, ...reason }, (data) => {
    return `release ${data.release} was promoted: ${data.reason}`;
  }),
  "app.scaled": is("info", { from: number, to: number }, (data) => {
    return `scaled from ${data.from} to ${data.to} instances`;
  }),
  "app.degraded": is("warn", { serving: number, count: number, ...reason }, (data) => {
    return `${data.serving} of ${data.count} instances serve: ${data.reason}`;
  }),
  "app.recovered": is("info", { count: number }, (data) => `all ${data.count} instances serve again`),
  "app.shared": is("info", {}, () => "share link made"),
  "app.unshared": is("info", {}, () => "share link ended"),
  "app.destroyed": is("info", {}, () => "app destroyed"),
  "instance.healthy": is("info", { appId: text }, () => "the instance is healthy"),
  "instance.unhealthy": is("warn", { appId: text, ...reason }, (data) => {
    return `the instance is unhealthy and gets no requests: ${data.reason}`;
  }),
  "instance.replaced": is("warn", { appId: text, ...reason }, (data) => `the instance is replaced: ${data.reason}`),

  "package.exported": is(
    "info",
    { reference: text, digest: text, machineId: text, sizeBytes: int64(), sentBytes: int64() },
    ({ reference, machineId, sizeBytes, sentBytes }) => {
      const sent = `${renderGb(sentBytes)} of ${renderGb(sizeBytes)} were sent`;
      return `machine ${machineId} was exported as ${reference}; ${sent}`;
    },
  ),
  "package.deleted": is(
    "info",
    { reference: text, digest: text, cause: oneOf(["requested", "retention"]) },
    ({ reference, cause }) =>
      cause === "requested" ? `${reference} was deleted` : `${reference} was deleted: newer ones are kept`,
  ),

  "webhook.disabled": is("error", { webhookId: text, ...reason }, (data) => {
    return `webhook ${data.webhookId} was disabled: ${data.reason}; repair the receiver, then enable the webhook`;
  }),
  "tenant.budgetUsed": is(
    "warn",
    {
      percent: number,
      usedMicros: int64(),
      budgetMicros: int64(),
      heldMicros: int64(),
      policy: oneOf(BUDGET_POLICIES),
    },
    budgetText,
  ),
  "tenant.egressUsed": is("warn", { percent: number, sentBytes: int64(), maxEgressGb: int64() }, (data) => {
    const consequence = "; starts are refused until the month ends, and running machines are stopped";
    const sent = `${renderGb(data.sentBytes)} of ${data.maxEgressGb} GB`;
    return `${data.percent} % of the month's egress is used: ${sent}${data.percent === 100 ? consequence : ""}`;
  }),
} as const;

export type EventType = keyof typeof EVENTS;
export type EventData<T extends EventType> = Static<(typeof EVENTS)[T]["data"]>;

/** An event to be written: a type with its data. */
export type NewEvent = { readonly [T in EventType]: { readonly type: T; readonly data: EventData<T> } }[EventType];

/** The kind of thing that an event is about: `machine` of `machine.started`. */
export const subjectOf = (type: string): string => type.slice(0, Math.max(0, type.indexOf(".")));

export interface PrintedEvent {
  readonly level: EventLevel;
  readonly message: string;
}

export function printEvent({ type, data }: NewEvent): PrintedEvent {
  const { level, message } = EVENTS[type];
  // The type of `data` is that of `type`, which TypeScript does not follow through the table.
  return { level, message: (message as (data: unknown) => string)(data) };
}

/** A type of events, or all of a subject. */
export const eventPattern = (description: string) => typePattern(description, ["machine.failed", "machine.*"]);

export const matchesType = (type: string, patterns: readonly string[]): boolean =>
  patterns.some((pattern) => (pattern.endsWith(".*") ? type.startsWith(pattern.slice(0, -1)) : type === pattern));
