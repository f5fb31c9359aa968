/**
 * The input of commands that have none.
 *
 * Always: it has ended, and has no listeners, because all such commands share it. Node makes a function in
 * the old generation for each Writable, which would keep a command in memory until a full collection
 * (docs/decisions/0018-what-one-caller-may-hold.md).
 */
import { Writable } from "node:stream";

export const NO_INPUT: Writable = new Writable({ write: (_chunk, _encoding, done) => done() });
NO_INPUT.on("error", () => undefined);
NO_INPUT.end();
NO_INPUT.destroy();
