/**
 * Moves of a machine between two nodes.
 */
import type { Flotilla, Operation } from "@flotilla/sdk/client";
import { sleep } from "./clock.ts";
import { IMAGE } from "./flotilla.ts";

export const SIZE = { cpus: 1, memoryMb: 512 } as const;
const POLL_MS = 50;

/** Moves it to the other node; resolves with the operation, in whatever way it has ended. */
export async function moved(client: Flotilla, id: string): Promise<Operation> {
  const asked = await client.moveMachine(id, {});
  for (;;) {
    const operation = await client.getOperation(asked.id);
    if (operation.status !== "running") return operation;
    await sleep(POLL_MS);
  }
}

/** A machine whose memory is that of a template, but for what it changed. */
export async function machineOfTemplate(client: Flotilla, diskGb: number): Promise<string> {
  for (;;) {
    const source = { type: "image", reference: IMAGE } as const;
    const { id } = await client.createMachine({ source, resources: { ...SIZE, diskGb } });
    const { startTimings } = await client.startMachine(id);
    if ((startTimings?.vm ?? "boot") !== "boot") return id;
    await client.deleteMachine(id);
  }
}

/** Deletes it, and waits until nothing of it is left. */
export async function removeMachine(client: Flotilla, id: string): Promise<void> {
  await client.deleteMachine(id);
  while ((await client.listMachines()).length > 0) await sleep(POLL_MS);
}
