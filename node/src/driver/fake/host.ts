/**
 * What the parts of a fake driver share.
 */
import type { Clock } from "@flotilla/base/clock";
import type { FenceLease } from "../../host/fence-lease.ts";
import type { BootRequest, Vm } from "../driver.ts";
import type { FakeFiles } from "./files.ts";
import type { FakeCommand } from "./guest.ts";
import type { VmFile } from "./vm-file.ts";

export interface FakeHost {
  readonly clock: Clock;
  readonly lease: FenceLease;
  /** What its VMs run. */
  readonly program: string;
  environmentOf(machineId: string): Readonly<Record<string, string>>;
  filesOf(machineId: string): FakeFiles;
  /** Until when a VM that begins now is fenced; null: it is not. */
  fenceOf(request: BootRequest): number | null;
  /** Throws when another VM of the machine runs. */
  refuseSecond(request: BootRequest): Promise<void>;
  /** Ends what an agent left that was killed while it replaced the VMM. */
  endOthers(request: BootRequest): Promise<void>;
  /** The running VM of a file. `kept`: commands that continue in it. */
  hold(request: BootRequest, file: VmFile, kept: readonly FakeCommand[]): Vm;
}
