/**
 * Fake machines that move while they run: their memory is part of the devices' state.
 */
import type { BootRequest, DriverLive, PausedVm, ReceiveRequest, VmExit, WaitingVm } from "../driver.ts";
import { FakeFence } from "./fence.ts";
import type { FakeCommand } from "./guest.ts";
import type { FakeHost } from "./host.ts";
import { FakePausedVm, FakeWaitingVm } from "./paused.ts";
import {
  FORMAT,
  readVmFile,
  recordOf,
  removeVmFile,
  type SavedMemory,
  type VmFile,
  writeMemory,
  writeVmFile,
} from "./vm-file.ts";

export class FakeLive implements DriverLive {
  readonly #host: FakeHost;

  constructor(host: FakeHost) {
    this.#host = host;
  }

  async receive({ bootId, bootDirectory, machineId }: ReceiveRequest): Promise<WaitingVm> {
    const { program, clock } = this.#host;
    const record = { bootId, pid: 0, startTime: clock.now(), format: FORMAT, program };
    const load = async (state: Buffer, directory: string): Promise<PausedVm> => {
      const { file, files, commands } = JSON.parse(state.toString()) as SavedMemory;
      const { startTime: startedAt } = record;
      // When a fence ends is a time of the clock of one host.
      const loaded = { ...file, bootId, startedAt, answersAt: startedAt, isPaused: true, program, fencedUntil: null };
      await writeVmFile(directory, loaded);
      this.#host.filesOf(machineId).load(files);
      return this.#paused(machineId, loaded, { directory, commands });
    };
    return new FakeWaitingVm({ record, load }, bootDirectory);
  }

  async adopt(request: BootRequest): Promise<PausedVm | "gone"> {
    const file = await readVmFile(request.bootDirectory);
    if (file === undefined || file.bootId !== request.bootId) return "gone";
    await this.#host.endOthers(request);
    const paused = { ...file, isPaused: true };
    await writeVmFile(request.bootDirectory, paused);
    return this.#paused(request.machineId, paused, { directory: request.bootDirectory, commands: [] });
  }

  #paused(
    machineId: string,
    file: VmFile,
    { directory, commands }: { readonly directory: string; readonly commands: readonly FakeCommand[] },
  ): PausedVm {
    let place = directory;
    const { clock, lease } = this.#host;
    const until = file.fencedUntil ?? null;
    const save = (fencedUntil: number | null): Promise<void> => writeVmFile(place, { ...file, fencedUntil });
    const fence = (end: (exit: VmExit) => void): FakeFence => new FakeFence({ lease, clock, until, save, end });
    return new FakePausedVm({
      ...(until === null ? {} : { fence }),
      record: recordOf(file),
      end: () => removeVmFile(place),
      now: () => clock.now(),
      suspend: async ({ directory: into, memoryId }) => {
        await writeMemory(into, {
          memoryId,
          commands,
          file: { ...file, isPaused: false },
          files: this.#host.filesOf(machineId).inMemory(),
        });
        return clock.now();
      },
      resume: async (request) => {
        place = request.bootDirectory;
        await this.#host.refuseSecond(request);
        const running = { ...file, isPaused: false, fencedUntil: this.#host.fenceOf(request) };
        await writeVmFile(place, running);
        return this.#host.hold(request, running, commands);
      },
    });
  }
}
