/**
 * Looks for planted secrets in what a Flotilla writes and answers.
 *
 * Always: an empty place fails, so a test that reads the wrong place does not pass.
 */
import assert from "node:assert/strict";
import type { Flotilla } from "./flotilla.ts";

/** Shorter ones may occur by chance. */
const SECRET_CHARACTERS_MIN = 12;
const PLACE_CHARACTERS_MIN = 100;

/** Without characters that JSON, URLs or base64 would change. */
export const plantedValue = (of: string): string => `planted${of.replaceAll(" ", "")}0123456789abcdef`;

/**
 * The places that every test reads: events, audit rows, keys, logs at the level of the programs. By their
 * names.
 */
export async function placesOf(flotilla: Flotilla): Promise<Map<string, string>> {
  const admin = flotilla.client();
  return new Map([
    ["an event", (await admin.get("/v1/events?limit=1000")).text],
    ["an audit row", (await admin.get("/v1/audit?limit=1000")).text],
    ["a list of keys", (await admin.get("/v1/apikeys")).text],
    ["a list of nodes", (await admin.get("/v1/nodes")).text],
    ["the log of the server", (await flotilla.servers[0]?.log()) ?? ""],
    ["the log of the node", (await flotilla.nodes[0]?.log()) ?? ""],
  ]);
}

/** Fails with the name of the secret and its surroundings when one is in any place. Both by their names. */
export function assertInNone(secrets: ReadonlyMap<string, string>, places: ReadonlyMap<string, string>): void {
  for (const [place, text] of places) {
    assert.ok(text.length > PLACE_CHARACTERS_MIN, `${place} is empty: ${text}`);
    for (const [name, secret] of secrets) {
      assert.ok(secret.length >= SECRET_CHARACTERS_MIN, `${name} is too short to be found: ${secret}`);
      const at = text.indexOf(secret);
      assert.equal(at, -1, `${name} is in ${place}: ${text.slice(Math.max(0, at - 200), at + 20)}`);
    }
  }
}
