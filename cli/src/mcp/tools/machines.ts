/**
 * Tools for machines: list, make, start, stop, delete, branch, adopt.
 */
import type { MachineInfo } from "@flotilla/sdk";
import type { CallToolResult } from "@modelcontextprotocol/server";
import { z } from "zod";
import { findMachine } from "../../machine/find.ts";
import { IDLE_SECONDS } from "../ceilings.ts";
import { json, refused, text } from "../results.ts";
import { machineInput, type Question, type Tool, tool, type Use } from "../tool.ts";

const LISTED_MAX = 200;
const DISK_GB = 4;

/** What an assistant needs to know of a machine; get_machine has the rest. */
const summary = ({ id, name, state, source, url, ports, createdAt, parentMachineId }: MachineInfo): object => ({
  id,
  name,
  state,
  image: source.type === "image" ? source.reference : source,
  url,
  ports: ports.map(({ port }) => port),
  createdAt,
  ...(parentMachineId === null ? {} : { parentMachineId }),
});

/** Deletes what was made by this call, also when the call itself was cancelled. */
const remove =
  ({ session }: Use) =>
  (made: MachineInfo): Promise<unknown> =>
    session.flotilla.deleteMachine(made.id).catch(() => undefined);

async function aboutMachine(reference: string, use: Use, what: string): Promise<Question> {
  const { id, name } = await findMachine(use.session.flotilla, reference);
  return { text: `${what} the machine ${JSON.stringify(name ?? id)} (${id})?`, target: id };
}

const listMachines = tool({
  name: "list_machines",
  title: "List machines",
  description: "Lists the machines that the key may see, with state, image and address.",
  needs: ["machine:read"],
  input: z.object({ label: z.string().max(200).optional().describe("only machines with this label, as key=value") }),
  effect: "reads",
  run: async ({ label }, { session, signal }) => {
    const query = { limit: LISTED_MAX, ...(label === undefined ? {} : { label: [label] }) };
    const machines = await session.flotilla.listMachines({ query, signal });
    const more = machines.length < LISTED_MAX ? "" : `\n[the first ${LISTED_MAX}; there may be more: give a label]`;
    return json(machines.map(summary), more);
  },
});

const getMachine = tool({
  name: "get_machine",
  title: "Show a machine",
  description: "Shows all facts of one machine, and why it is in error if it is.",
  needs: ["machine:read"],
  input: z.object({ machine: machineInput }),
  effect: "reads",
  run: async ({ machine }, { session }) => json(await findMachine(session.flotilla, machine)),
});

const createMachine = tool({
  name: "create_machine",
  title: "Make a machine",
  description:
    "Makes a microVM from an OCI image and starts it. It has its own kernel and disk, keeps its files when it stops, " +
    "and starts when a command arrives. local/busybox is a small image that needs no registry.",
  needs: ["machine:create", "machine:read"],
  input: z.object({
    image: z.string().min(1).max(500).describe("an image's reference, such as local/busybox or python:3.13"),
    package: z.boolean().default(false).describe("whether image is that of a packaged machine, of list_packages"),
    name: z.string().max(63).optional().describe("lower case letters, digits and hyphens; unique"),
    cpus: z.number().int().min(1).max(64).default(1),
    memoryMb: z.number().int().min(64).max(1_048_576).default(512),
    diskGb: z.number().int().min(1).max(65_536).optional().describe("default: 4, or as large as the package"),
    env: z.record(z.string(), z.string()).optional().describe("environment of the machine and of its commands"),
    ports: z.array(z.number().int().min(1).max(65_535)).max(32).optional().describe("ports to publish"),
    command: z.array(z.string()).max(256).optional().describe("replaces the image's command"),
    labels: z.record(z.string(), z.string()).optional(),
    network: z.enum(["open", "blocked"]).default("open").describe("whether it reaches the network"),
    start: z.boolean().default(true),
    branchable: z.boolean().default(false).describe("whether branches of it can be made while it runs"),
    autoStopSeconds: z.number().int().min(10).optional().describe("stop after this long without a command"),
    ttlSeconds: z.number().int().min(10).optional().describe("delete this long after it was made"),
  }),
  effect: "makes",
  run: async (input, use) => {
    const { session, signal } = use;
    const {
      image,
      package: isPackage,
      cpus,
      memoryMb,
      diskGb = isPackage ? undefined : DISK_GB,
      ports,
      network,
      start,
      autoStopSeconds,
      ...rest
    } = input;
    const { ceilings } = session.common;
    const idleSeconds = ceilings.limitsSpending
      ? Math.min(autoStopSeconds ?? IDLE_SECONDS, IDLE_SECONDS)
      : autoStopSeconds;
    const body = {
      ...rest,
      source: { type: isPackage ? "smolmachine" : "image", reference: image } as const,
      resources: { cpus, memoryMb, diskGb },
      network: { mode: network },
      ports: ports?.map((port) => ({ port })),
      autoStopSeconds: idleSeconds,
    };
    const make = (): Promise<MachineInfo> =>
      session.flotilla.createMachine(body, { signal, idempotencyKey: crypto.randomUUID() });
    const made = await ceilings.making(session, { count: 1 }, make, remove(use));
    return start ? startNew(made, use) : json(summary(made));
  },
});

/** Says what is left when it does not start. A cancelled call leaves nothing. */
async function startNew(made: MachineInfo, use: Use): Promise<CallToolResult> {
  const { session, signal } = use;
  try {
    return json(summary(await session.flotilla.startMachine(made.id, { signal })));
  } catch (error) {
    if (signal.aborted) await remove(use)(made);
    const { content } = refused(error);
    const left = `${made.name ?? made.id} is made and not started: start_machine tries again, delete_machine removes it`;
    return { content: [...content, { type: "text", text: left }], isError: true };
  }
}

const startMachine = tool({
  name: "start_machine",
  title: "Start a machine",
  description: "Starts a machine and waits until it has booted. A suspended one continues its processes.",
  needs: ["machine:create", "machine:read"],
  input: z.object({ machine: machineInput }),
  effect: "makes",
  run: async ({ machine }, { session, signal }) => {
    const { id } = await findMachine(session.flotilla, machine);
    await session.common.ceilings.starting(session);
    return json(summary(await session.flotilla.startMachine(id, { signal })));
  },
});

const stopMachine = tool({
  name: "stop_machine",
  title: "Stop a machine",
  description:
    "Stops a machine; its disk is kept. With keepMemory it is suspended, and a start continues its processes.",
  needs: ["machine:create", "machine:read"],
  input: z.object({ machine: machineInput, keepMemory: z.boolean().default(false) }),
  effect: "makes",
  run: async ({ machine, keepMemory }, { session, signal }) => {
    const { id } = await findMachine(session.flotilla, machine);
    return json(summary(await session.flotilla.stopMachine(id, { query: { keepMemory }, signal })));
  },
});

const deleteMachine = tool({
  name: "delete_machine",
  title: "Delete a machine",
  description: "Deletes a machine with its disk, for good.",
  needs: ["machine:delete", "machine:read"],
  input: z.object({ machine: machineInput }),
  effect: "destroys",
  question: ({ machine }, use) => aboutMachine(machine, use, "Delete, with its disk,"),
  run: async ({ machine }, { session, signal }) => {
    const { id } = await findMachine(session.flotilla, machine);
    await session.flotilla.deleteMachine(id, { signal });
    return text(`deleted ${id}`);
  },
});

const branchMachine = tool({
  name: "branch_machine",
  title: "Branch a machine",
  description:
    "Makes a machine that continues as a running, branchable machine is now, with its files, memory and processes: " +
    "for trying something without touching the original.",
  needs: ["machine:create", "machine:read"],
  input: z.object({
    machine: machineInput,
    name: z.string().min(1).max(63).describe("the branch's name"),
    secrets: z.enum(["inherit", "refuse"]).default("refuse").describe("whether it gets the machine's secret values"),
  }),
  effect: "makes",
  run: async ({ machine, name, secrets }, use) => {
    const { session, signal } = use;
    const { id } = await findMachine(session.flotilla, machine);
    const make = (): Promise<MachineInfo> =>
      session.flotilla.createBranch(id, { name, secrets }, { signal, idempotencyKey: crypto.randomUUID() });
    return json(summary(await session.common.ceilings.making(session, { count: 1 }, make, remove(use))));
  },
});

const adoptBranch = tool({
  name: "adopt_branch",
  title: "Adopt a branch",
  description:
    "Gives a branch the place of the machine that it was made from: name, address, ports. The source is deleted, " +
    "or kept under another name with keepSource.",
  needs: ["machine:create", "machine:delete", "machine:read"],
  input: z.object({ branch: machineInput, keepSource: z.boolean().default(false) }),
  effect: "destroys",
  question: async ({ branch, keepSource }, use) =>
    keepSource ? null : aboutMachine(branch, use, "Delete the machine that it was made from, and put in its place"),
  run: async ({ branch, keepSource }, { session, signal }) => {
    const { id } = await findMachine(session.flotilla, branch);
    const { machine, source } = await session.flotilla.adoptMachine(
      id,
      { source: keepSource ? "keep" : "delete" },
      { signal },
    );
    return json({ machine: summary(machine), source: source === null ? null : summary(source) });
  },
});

export const machineTools: readonly Tool[] = [
  listMachines,
  getMachine,
  createMachine,
  startMachine,
  stopMachine,
  deleteMachine,
  branchMachine,
  adoptBranch,
];
