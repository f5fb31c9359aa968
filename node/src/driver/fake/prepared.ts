/**
 * Prepared VMs without VMs, for the fake driver.
 *
 * Each has a `vm.json` in its directory, like a fake VM of a machine, so that prepared VMs are counted and
 * swept like real ones. Always: a VM is started at most once, and its file is removed with it.
 */
import { mkdir, rename, rm } from "node:fs/promises";
import type { BootRequest, PreparedVm, PrepareRequest, Vm, VmExit } from "../driver.ts";

export interface FakePreparing {
  /** Contains the directories of prepared VMs. */
  readonly directory: string;
  /** Simulates the preparation: its duration, and a failure if it rejects. */
  readonly work: (request: PrepareRequest, signal: AbortSignal) => Promise<void>;
}

export class FakePreparedVm implements PreparedVm {
  readonly bootId: string;
  readonly uid: number;
  readonly exited: Promise<VmExit>;
  readonly #request: PrepareRequest;
  readonly #start: (request: BootRequest) => Promise<Vm>;
  readonly #ending = Promise.withResolvers<VmExit>();

  constructor(request: PrepareRequest, start: (request: BootRequest) => Promise<Vm>) {
    this.bootId = request.bootId;
    this.uid = request.uid;
    this.exited = this.#ending.promise;
    this.#request = request;
    this.#start = start;
  }

  async start(request: BootRequest): Promise<Vm> {
    const { bootDirectory } = this.#request;
    if (request.bootDirectory !== bootDirectory) await moveInto(bootDirectory, request.bootDirectory);
    return await this.#start(request);
  }

  async discard(): Promise<void> {
    await rm(this.#request.bootDirectory, { recursive: true, force: true });
    this.#ending.resolve({ kind: "killed", detail: "the fake VM was discarded" });
  }
}

/** Like the real driver: replaces the directory that was made for the boot. */
async function moveInto(from: string, to: string): Promise<void> {
  await mkdir(to, { recursive: true });
  await rename(from, to);
}
