/**
 * Generates identifiers: `<prefix>-<32 hex digits>`, 128 random bits, so that ids from several servers never
 * collide.
 */
import { ID_PREFIXES } from "@flotilla/contract/ids";
import type { Ids } from "./context.ts";

export const randomIds = (randomBytes: (size: number) => Buffer): Ids => ({
  make: (kind) => `${ID_PREFIXES[kind]}-${randomBytes(16).toString("hex")}`,
});
