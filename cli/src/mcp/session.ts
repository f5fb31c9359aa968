/**
 * What the tools of one caller work with: its key, the ceilings of this program, and how questions are
 * signed.
 */
import { createHash, randomBytes } from "node:crypto";
import { createRequestStateCodec, type RequestStateCodec } from "@modelcontextprotocol/server";
import type { Access } from "./access.ts";
import type { Ceilings } from "./ceilings.ts";

/** What a question was about, which its answer must be about too. */
export interface Asked {
  readonly about: string;
}

/** The same for all callers of this program. */
export interface Common {
  readonly ceilings: Ceilings;
  readonly asked: RequestStateCodec<Asked>;
  /** Whether it asks back before what cannot be undone. */
  readonly confirms: boolean;
  readonly version: string;
}

export interface Session extends Access {
  readonly common: Common;
}

const KEY_BYTES = 32;

/** Signs questions for as long as this process runs; after that they are asked again. */
export const askedCodec = (): RequestStateCodec<Asked> =>
  createRequestStateCodec<Asked>({
    key: randomBytes(KEY_BYTES),
    bind: (context) => `${context.mcpReq.method} ${context.http?.authInfo?.clientId ?? ""}`,
  });

/** A value as a short text that no other value has. */
export const digest = (value: unknown): string => createHash("sha256").update(JSON.stringify(value)).digest("hex");
