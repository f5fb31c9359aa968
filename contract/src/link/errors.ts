/**
 * Why a node does not do what the server asked.
 */
import { clipped, type Message, oneOfOr, Type } from "./vocabulary.ts";

const MESSAGE_CHARACTERS_MAX = 500;

/**
 * The body of every answer of a node but 200 and 409 of a PUT, and the `failure` frame of a command. Programs decide by the
 * code; the message is for people.
 *
 * `invalid`: the request does not fit. `version`: the versions of both sides do not meet. `not_found`: no such machine or
 * route. `not_running`: the machine does not run here. `guest_unreachable`: its agent does not answer. `refused`: its port
 * takes no connection. `busy`: as many run or are open as may be at once. `no_space`: the node's disk is full. `internal`:
 * anything else.
 */
export const LinkError = Type.Object({
  code: oneOfOr(
    ["invalid", "version", "not_found", "not_running", "guest_unreachable", "refused", "busy", "no_space"],
    "internal",
  ),
  message: clipped(MESSAGE_CHARACTERS_MAX),
});
export type LinkError = Message<typeof LinkError>;
