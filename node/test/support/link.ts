/**
 * A node agent without a process, and the socket on which it serves the link, for tests that act as its
 * server.
 */
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { type Clock, systemClock } from "@flotilla/base/clock";
import { makeLog } from "../../src/log.ts";
import { type ServedLink, serveLink } from "../../src/link/server.ts";
import { Incoming } from "../../src/moves/incoming.ts";
import type { CallServer } from "../../src/images/own-registry.ts";
import { Exports } from "../../src/packages/exports.ts";
import { linkSocketPath } from "../../src/link/socket-path.ts";
import { startTestNode, temporaryDirectory, type TestNode } from "./in-process.ts";

export interface TestLink extends AsyncDisposable {
  readonly node: TestNode;
  readonly socketPath: string;
  readonly serve: ServedLink["serve"];
  /** Directory of archives that are imported. */
  readonly temporaryDirectory: string;
  /** What the link has logged as an error of the node. */
  readonly errors: readonly string[];
  /** Closes only the link, before the rest. */
  close(): Promise<void>;
}

export interface TestLinkOptions {
  readonly clock?: Clock;
  readonly temporaryDirectory?: string;
  /** Reaches a registry; absent: none. */
  readonly callServer?: CallServer;
}

export async function startTestLink(options: TestLinkOptions = {}): Promise<TestLink> {
  const { clock = systemClock } = options;
  const directory = await temporaryDirectory();
  const temporary = options.temporaryDirectory ?? join(directory.path, "temporary");
  await mkdir(temporary, { recursive: true });
  const node = await startTestNode(directory.path, { clock });
  const socketPath = linkSocketPath(directory.path);
  const errors: string[] = [];
  const log = makeLog({ level: "silent", clock: node.clock, onError: (message) => errors.push(message) });
  const { fleet, deps } = node;
  const incoming = new Incoming({ directory: join(directory.path, "incoming"), fleet, deps, log });
  await incoming.open();
  const link = await serveLink({
    socketPath,
    serverUid: null,
    temporaryDirectory: temporary,
    fleet: node.fleet,
    incoming,
    replacements: node.replacements,
    branches: node.branches,
    exports: new Exports({
      ...{ fleet, deps, callServer: options.callServer ?? null, temporaryDirectory: temporary, arch: "amd64" },
      ...{ clock, log, push: { retryDelayMs: 10 } },
    }),
    images: node.images,
    outgoing: deps,
    clock: node.clock,
    log,
    bootId: "agent-test",
  });
  let closing: Promise<void> | null = null;
  const close = (): Promise<void> => (closing ??= Promise.resolve(link[Symbol.asyncDispose]()));
  return {
    node,
    socketPath,
    serve: link.serve,
    temporaryDirectory: temporary,
    errors,
    close,
    [Symbol.asyncDispose]: async () => {
      await close();
      await node.fleet.release();
      await directory[Symbol.asyncDispose]();
    },
  };
}
