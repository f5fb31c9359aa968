/**
 * Commands that a machine runs at moments of its life, as its owner gives them and reads them. When they run,
 * and what follows a failure, is decided on the machine's node.
 */
import { HOOK_TIMEOUT_DEFAULT_SECONDS, HOOK_TIMEOUT_MAX_SECONDS } from "./limits.ts";
import { optional, type Static, text, Type } from "./schema.ts";

/** Moments at which a machine runs a command of its owner. */
export const HOOK_MOMENTS = ["fork", "resume", "suspend", "stop"] as const;
export type HookMoment = (typeof HOOK_MOMENTS)[number];

const hookCommand = () =>
  Type.Array(text(), {
    minItems: 1,
    description: "the program and its arguments, bounded as those of exec; it runs as a command of exec does",
  });
const hookTimeout = () =>
  Type.Integer({
    ...{ format: "int32", minimum: 1, maximum: HOOK_TIMEOUT_MAX_SECONDS },
    description: `it is killed after this long; default: ${HOOK_TIMEOUT_DEFAULT_SECONDS}`,
  });

export const HookRequest = Type.Object({ command: hookCommand(), timeoutSecs: optional(hookTimeout()) });
export type HookRequest = Static<typeof HookRequest>;

export const HooksRequest = Type.Object(
  {
    fork: optional(HookRequest),
    resume: optional(HookRequest),
    suspend: optional(HookRequest),
    stop: optional(HookRequest),
  },
  {
    description:
      "commands that run in the machine at moments of its life. `fork`: in a branch of it, which does not start when it fails. " +
      "`resume`: after a start continues its memory. `suspend`: before its memory is saved. `stop`: before its programs get the signal to end. " +
      "The failure of one but `fork` is an event of the machine.",
  },
);
export type HooksRequest = Static<typeof HooksRequest>;

export const MachineHook = Type.Object({ command: hookCommand(), timeoutSecs: Type.Optional(hookTimeout()) });
export type MachineHook = Readonly<Static<typeof MachineHook>>;

export const MachineHooks = Type.Object({
  fork: Type.Optional(MachineHook),
  resume: Type.Optional(MachineHook),
  suspend: Type.Optional(MachineHook),
  stop: Type.Optional(MachineHook),
});
export type MachineHooks = Readonly<Static<typeof MachineHooks>>;
