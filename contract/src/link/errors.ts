/**
 * Why a node does not do what the server asked.
 */
import { clipped, type Message, oneOfOr, Type } from "./vocabulary.ts";

const MESSAGE_CHARACTERS_MAX = 500;

/** Why a guest does not do something with a file. */
export const FILE_FAILURES = [
  "no_such_file",
  "is_directory",
  "not_directory",
  "not_empty",
  "not_regular",
  "name_too_long",
  "in_memory",
  "hash_differs",
  "too_many_entries",
  "file_refused",
] as const;

/**
 * The body of every answer of a node but 200 and 409 of a PUT, and the `failure` frame of a command. Programs
 * decide by the code; the message is for people.
 *
 * `invalid`: the request does not fit. `version`: the versions of both sides do not meet. `not_found`: no
 * such machine or route. `not_running`: the machine does not run here. `guest_unreachable`: its agent does
 * not answer. `refused`: its port takes no connection. `busy`: as many run or are open as may be at once.
 * `no_space`: the node's disk or the machine's is full. `paused`: the guest is paused by its VMM, as
 * pauseReason of an ObservedMachine says, and does nothing meanwhile. `interrupted`: another VMM has got the
 * guest meanwhile, and the work may be repeated there; of a point, what points.ts says. `not_stopped`: the
 * machine's files may change. `older_copy`: the node has an earlier copy of a machine that moves there.
 * `not_runnable`: the installed program does not run. `replaced`: another client has taken the terminal over.
 * `internal`: anything else.
 *
 * Of files (FILE_FAILURES): `not_directory`: the path, or what should contain it, is none. `not_regular`:
 * neither file nor directory. `in_memory`: a link leads from the disk into memory; the message is the path
 * there. `hash_differs`: the content is not the announced one. `too_many_entries`: more than
 * FILE_ENTRIES_MAX. `file_refused`: the guest's kernel refused; the message has its reason.
 */
export const LinkError = Type.Object({
  code: oneOfOr(
    [
      "invalid",
      "version",
      "not_found",
      "not_running",
      "guest_unreachable",
      "refused",
      "busy",
      "no_space",
      "paused",
      "interrupted",
      "not_stopped",
      "older_copy",
      "not_runnable",
      "replaced",
      ...FILE_FAILURES,
    ],
    "internal",
  ),
  message: clipped(MESSAGE_CHARACTERS_MAX),
});
export type LinkError = Message<typeof LinkError>;
