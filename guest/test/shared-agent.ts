/**
 * One agent with sanitizers for all tests of a file, and directories for them; both are removed after the
 * tests.
 *
 * Always: a sanitizer's report, or an agent that does not exit cleanly, fails the file.
 */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { after } from "node:test";
import type { BulkDisk } from "@flotilla/node/guest/bulk-disk";
import type { Guest, GuestExec, GuestFileRequest } from "@flotilla/node/guest/guest";
import { startAgent, type TestAgent } from "./agent.ts";

interface SharedAgent {
  readonly agent: TestAgent;
  readonly guest: Guest;
  /** A request for a whole file, unless `more` overrides it. */
  file(operation: GuestFileRequest["operation"], path: string, more?: Partial<GuestFileRequest>): GuestExec;
}

export async function startSharedAgent(bulk?: BulkDisk): Promise<SharedAgent> {
  const agent = startAgent({ hasCgroup: true });
  after(async () => {
    const code = await agent.end();
    assert.equal(agent.log(), "", "the agent or a sanitizer complained");
    assert.equal(code, 0);
  });
  const guest = await agent.connect(agent.socket, bulk);
  return {
    agent,
    guest,
    file: (operation, path, more = {}) =>
      guest.file({ operation, path, offset: 0, length: null, isFromEnd: false, ...more }),
  };
}

/** A new directory; its name starts with the prefix. */
export function makeDirectory(prefix: string): string {
  const directory = mkdtempSync(prefix);
  after(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}
