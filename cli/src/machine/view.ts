/**
 * How a machine is displayed on a terminal: a row of the list, and everything about one. Pure; `now` is
 * passed in.
 */
import { renderSpan } from "@flotilla/base/span";
import type { MachineInfo } from "@flotilla/sdk";
import { renderMemory } from "../table.ts";

export const MACHINE_HEADS = ["NAME", "STATE", "IMAGE", "CPUS", "MEMORY", "AGE", "ID"] as const;

export function machineRow(machine: MachineInfo, now: number): readonly string[] {
  return [
    machine.name ?? "-",
    shortState(machine),
    machine.source.reference,
    String(machine.resources.cpus),
    renderMemory(machine.resources.memoryMb),
    age(machine.createdAt, now),
    machine.id,
  ];
}

export function machineFacts(machine: MachineInfo, now: number): readonly (readonly [string, string | null])[] {
  const { cpus, memoryMb, diskGb } = machine.resources;
  return [
    ["name", machine.name],
    ["id", machine.id],
    ["state", longState(machine, now)],
    ["image", machine.source.reference + (machine.arch === null ? "" : ` (${machine.arch})`)],
    ["size", `${cpus} CPUs, ${renderMemory(memoryMb)} memory${diskGb === null ? "" : `, ${diskGb} GB disk`}`],
    ["network", network(machine)],
    ["ports", machine.ports.map((item) => portText(item)).join(", ") || null],
    ["url", machine.url],
    ["workdir", machine.workdir],
    ["environment", pairs(machine.env)],
    ["command", machine.command?.join(" ") ?? null],
    ["hooks", machine.hooks === null ? null : Object.keys(machine.hooks).join(", ")],
    ["labels", pairs(machine.labels)],
    ["lifetime", lifetime(machine)],
    ["created", `${age(machine.createdAt, now)} ago (${machine.createdAt})`],
    ["last used", machine.lastActivityAt === null ? null : `${age(machine.lastActivityAt, now)} ago`],
    ["node", machine.nodeId],
  ];
}

function shortState(machine: MachineInfo): string {
  return machine.state === "started" && !machine.ready ? "started, not ready" : machine.state;
}

function longState(machine: MachineInfo, now: number): string {
  if (machine.state === "error") return `error: ${machine.error ?? "no reason was given"}`;
  if (machine.state === "stopped" && typeof machine.suspendedAt === "string")
    return `stopped, its memory is kept since ${age(machine.suspendedAt, now)}`;
  if (machine.state !== "started") return machine.state;
  if (typeof machine.pauseReason === "string") return `started, but paused: ${machine.pauseReason}`;
  if (typeof machine.unresponsiveSince === "string")
    return `started, but its agent has not answered for ${age(machine.unresponsiveSince, now)}`;
  if (!machine.ready) return "started, not ready yet";
  return machine.readyAt === null ? "started, ready" : `started, ready since ${age(machine.readyAt, now)}`;
}

function network(machine: MachineInfo): string {
  const { mode, cidrs = [], hosts = [] } = machine.network;
  return mode === "allowCidrs" ? `only ${[...cidrs, ...hosts].join(", ")}` : mode;
}

const portText = ({ port, hostPort }: MachineInfo["ports"][number]): string =>
  hostPort === null ? String(port) : `${port} (on the node: ${hostPort})`;

const DISRUPTION_TEXTS = {
  restart: "restarted when it moves to another node",
  stop: "stopped when it moves to another node",
} as const;

const END_TEXTS = { delete: "deleted", suspend: "suspended", stop: "stopped" } as const;

function lifetime(machine: MachineInfo): string | null {
  const parts = [
    machine.ephemeral ? "deleted once stopped" : null,
    machine.autoStopSeconds === null ? null : `stops after ${renderSpan(machine.autoStopSeconds * 1000)} without use`,
    machine.ttlSeconds === null
      ? null
      : `${END_TEXTS[machine.atEnd]} ${renderSpan(machine.ttlSeconds * 1000)} after creation`,
    machine.restart === "never" ? "not restarted after a crash" : null,
    machine.disruption === "migrate" ? null : DISRUPTION_TEXTS[machine.disruption],
  ];
  return parts.filter((part) => part !== null).join(", ") || null;
}

const pairs = (map: Readonly<Record<string, string>>): string | null =>
  Object.entries(map)
    .map(([name, value]) => `${name}=${value}`)
    .join(" ") || null;

const age = (instant: string, now: number): string => renderSpan(now - Date.parse(instant));
