/**
 * The memory of suspended fake machines: a file with what their guests had, and no pages.
 *
 * Always: memory that was used or that does not fit the machine's disk is not continued.
 */
import type { MemoryUse } from "@flotilla/contract/link/points";
import type { BootRequest, DriverMemory, KeptMemory, MemoryFiles, MemoryPlace, Vm } from "../driver.ts";
import type { FakeHost } from "./host.ts";
import { FORMAT, identityOf, readMemory, removeVmFile, writeVmFile } from "./vm-file.ts";

export class FakeMemory implements DriverMemory {
  readonly format = FORMAT;
  readonly #host: FakeHost;

  constructor(host: FakeHost) {
    this.#host = host;
  }

  async resume(request: BootRequest, memory: KeptMemory, signal: AbortSignal): Promise<Vm> {
    const { clock, program } = this.#host;
    await this.#host.refuseSecond(request);
    await this.describe({ directory: memory.directory, diskPath: request.diskPath }, memory);
    const saved = await readMemory(memory.directory);
    const environment = this.#host.environmentOf(request.machineId);
    if (environment["FAKE_RESUME_FAIL"] !== undefined) throw new Error("FAKE_RESUME_FAIL is set");
    const began = { bootId: request.bootId, startedAt: clock.now(), answersAt: clock.now(), program };
    const file = { ...saved.file, ...began, fencedUntil: this.#host.fenceOf(request) };
    request.mayBegin?.();
    await writeVmFile(request.bootDirectory, file);
    try {
      signal.throwIfAborted();
      await memory.used();
    } catch (error) {
      await removeVmFile(request.bootDirectory);
      throw error;
    }
    memory.onRunning(clock.now());
    if (environment["FAKE_RESUME_SILENT"] !== undefined) {
      await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
      await removeVmFile(request.bootDirectory);
      signal.throwIfAborted();
    }
    this.#host.filesOf(request.machineId).load(saved.files);
    const vm = this.#host.hold(request, file, memory.keepsCommands ? saved.commands : []);
    try {
      if (environment["FAKE_CLONE_FAIL"] !== undefined) throw new Error("FAKE_CLONE_FAIL is set");
      await memory.becomes?.(vm.guest, null);
      return vm;
    } catch (error) {
      await vm.kill();
      throw error;
    }
  }

  async describe(
    { directory, diskPath }: MemoryPlace,
    { memoryId, moved }: Pick<KeptMemory, "memoryId" | "moved">,
  ): ReturnType<DriverMemory["describe"]> {
    const saved = await readMemory(directory);
    if (saved.memoryId !== memoryId) throw new Error("its file is that of another time");
    if (moved !== null && moved.disk !== (await identityOf(diskPath)))
      throw new Error("the machine's disk has changed");
    return { format: FORMAT, hasBase: false };
  }

  async files({ diskPath }: MemoryPlace): Promise<MemoryFiles> {
    return { disk: await identityOf(diskPath), base: null };
  }

  bases(): Promise<readonly string[]> {
    return Promise.resolve([]);
  }
}

/** FAKE_OWN_BYTES, FAKE_SHARED_BYTES: the memory that a VM takes. */
export function memoryUseIn(environment: Readonly<Record<string, string>>): MemoryUse {
  const { FAKE_OWN_BYTES = "0", FAKE_SHARED_BYTES = "0" } = environment;
  return { ownBytes: Number(FAKE_OWN_BYTES), sharedBytes: Number(FAKE_SHARED_BYTES) };
}
