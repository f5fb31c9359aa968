/**
 * Machines, branches and apps that end with the block that made them:
 * `await using machine = await ownedMachine(flotilla, { source: … })`.
 *
 * Always:
 * - Each is made with an idempotency key, so that a lost answer leaves no second one behind.
 * - The end of the block deletes it, also when the block throws. What is gone by then is not an error.
 *
 * A program that is killed in the block leaves it behind; `ttlSeconds` of a machine's request bounds that.
 */
import type { CallOptions } from "./call.ts";
import { FlotillaError } from "./errors.ts";
import type { AppInfo, BranchRequest, CreateMachineRequest, DeployRequest, MachineInfo, Methods } from "./generated.ts";

/** What was made, with its deletion. */
export type Owned<Made> = Made & AsyncDisposable;

/** A machine that is deleted at the end of its block. */
export async function ownedMachine(
  flotilla: Methods,
  body: CreateMachineRequest,
  options: CallOptions = {},
): Promise<Owned<MachineInfo>> {
  const machine = await flotilla.createMachine(body, once(options));
  return owned(machine, () => flotilla.deleteMachine(machine.id));
}

/** A branch of a running machine that is deleted at the end of its block. */
export async function ownedBranch(
  flotilla: Methods,
  sourceId: string,
  body: BranchRequest,
  options: CallOptions = {},
): Promise<Owned<MachineInfo>> {
  const machine = await flotilla.createBranch(sourceId, body, once(options));
  return owned(machine, () => flotilla.deleteMachine(machine.id));
}

/** An app that is destroyed at the end of its block, also one that was there before. */
export async function ownedApp(
  flotilla: Methods,
  body: DeployRequest,
  options: CallOptions = {},
): Promise<Owned<AppInfo>> {
  const app = await flotilla.deployApp(body, once(options));
  return owned(app, () => flotilla.destroyApp(app.name));
}

const once = (options: CallOptions): CallOptions => ({
  ...options,
  idempotencyKey: options.idempotencyKey ?? globalThis.crypto.randomUUID(),
});

function owned<Made extends object>(made: Made, remove: () => Promise<unknown>): Owned<Made> {
  const dispose = async (): Promise<void> => {
    await remove().catch((error: unknown) => {
      if (!(error instanceof FlotillaError && error.code === "not_found")) throw error;
    });
  };
  // Not listed, so that what was made prints and copies as the API's answer.
  // Browsers without it have no block that would end.
  if (Symbol.asyncDispose === undefined) return made as Owned<Made>;
  return Object.defineProperty(made, Symbol.asyncDispose, { value: dispose }) as Owned<Made>;
}
