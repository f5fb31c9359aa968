/**
 * A node agent without a process, and the socket on which it serves the link, for tests that act as its server.
 */
import { makeLog } from "../../src/log.ts";
import { serveLink } from "../../src/link/server.ts";
import { linkSocketPath } from "../../src/link/socket-path.ts";
import { startTestNode, temporaryDirectory, type TestNode } from "./in-process.ts";

export interface TestLink extends AsyncDisposable {
  readonly node: TestNode;
  readonly socketPath: string;
  /** Closes only the link, before the rest. */
  close(): Promise<void>;
}

export async function startTestLink(): Promise<TestLink> {
  const directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  const socketPath = linkSocketPath(directory.path);
  const link = await serveLink({
    socketPath,
    serverUid: null,
    temporaryDirectory: directory.path,
    isNearlyFull: () => Promise.resolve(false),
    fleet: node.fleet,
    images: node.images,
    clock: node.clock,
    log: makeLog({ level: "silent", clock: node.clock }),
  });
  let closing: Promise<void> | null = null;
  const close = (): Promise<void> => (closing ??= Promise.resolve(link[Symbol.asyncDispose]()));
  return {
    node,
    socketPath,
    close,
    [Symbol.asyncDispose]: async () => {
      await close();
      await node.fleet.release();
      await directory[Symbol.asyncDispose]();
    },
  };
}
