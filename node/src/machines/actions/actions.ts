/**
 * The function of each action of the plan.
 */
import { awaitLease } from "../fence.ts";
import type { Machine } from "../machine.ts";
import type { Action } from "../state.ts";
import { adopt } from "./adopt.ts";
import { awaitHost } from "./await-host.ts";
import { awaitRestart } from "./await-restart.ts";
import { boot } from "./boot.ts";
import { awaitMove, unpause } from "./moving.ts";
import { configure } from "./configure.ts";
import { cleanBoot, kill, removeFiles, shutDown } from "./end.ts";
import { ensureImage, makeDisk } from "./make.ts";
import { discardMemory, resume, suspend } from "./suspend.ts";

/** Rejects when it failed. `signal` is aborted when the action does not serve the desired state any more. */
type ActionFunction = (machine: Machine, signal: AbortSignal) => Promise<void>;

export const ACTIONS: Readonly<Record<Action, ActionFunction>> = {
  adopt,
  awaitRestart,
  awaitHost,
  awaitLease,
  ensureImage,
  makeDisk,
  boot,
  resume,
  configure,
  replaceVmm: async ({ replacing }, signal) => await replacing?.act(signal),
  unpause,
  awaitMove,
  suspend,
  discardMemory,
  shutDown,
  kill,
  cleanBoot,
  removeFiles,
};
