/**
 * One agent for all tests of a file, with sanitizers, and directories for them: both go when the tests have ended.
 *
 * Always: what a sanitizer says, and an agent that does not end well, fail the file.
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
  /** A request about the whole of a file, unless `more` says otherwise. */
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

/** A directory with a name that begins so. */
export function makeDirectory(prefix: string): string {
  const directory = mkdtempSync(prefix);
  after(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}
