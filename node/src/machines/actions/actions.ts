/**
 * What each action of the plan does. A table and nothing else.
 */
import type { Machine } from "../machine.ts";
import type { Action } from "../state.ts";
import { adopt } from "./adopt.ts";
import { awaitRestart } from "./await-restart.ts";
import { boot } from "./boot.ts";
import { configure } from "./configure.ts";
import { cleanBoot, kill, removeFiles, shutDown } from "./end.ts";
import { ensureImage, makeDisk } from "./make.ts";

/** Rejects when it could not be done; `signal` is aborted when it is not wanted any more. */
type ActionFunction = (machine: Machine, signal: AbortSignal) => Promise<void>;

export const ACTIONS: Readonly<Record<Action, ActionFunction>> = {
  adopt,
  awaitRestart,
  ensureImage,
  makeDisk,
  boot,
  configure,
  shutDown,
  kill,
  cleanBoot,
  removeFiles,
};
