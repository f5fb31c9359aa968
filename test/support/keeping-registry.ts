/**
 * The part of a registry that takes blobs, in memory. It keeps what has arrived of an upload when its
 * connection breaks, as Flotilla's own registry does, and Debian's does not.
 */
import { createHash } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { systemClock } from "@flotilla/base/clock";

export interface KeepingRegistry extends AsyncDisposable {
  readonly port: number;
  readonly blobs: ReadonlyMap<string, Buffer>;
}

/** `partMs`: how long it takes for each piece of a body that it reads. */
export async function startKeepingRegistry({
  partMs = 0,
}: {
  readonly partMs?: number;
} = {}): Promise<KeepingRegistry> {
  const blobs = new Map<string, Buffer>();
  const uploads = new Map<string, Buffer>();
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const { pathname, searchParams } = new URL(request.url ?? "", "http://registry");
    const name = pathname.split("/").at(-1) ?? "";
    if (request.method === "HEAD") return void response.writeHead(blobs.has(name) ? 200 : 404).end();
    if (request.method === "POST") {
      uploads.set(String(uploads.size), Buffer.alloc(0));
      return void response.writeHead(202, { location: `${pathname}${uploads.size - 1}` }).end();
    }
    const held = uploads.get(name);
    if (held === undefined) return void response.writeHead(404).end();
    const range = (): string => `0-${Math.max(0, (uploads.get(name) ?? held).byteLength - 1)}`;
    if (request.method === "GET") return void response.writeHead(204, { location: pathname, range: range() }).end();
    if (request.method === "PUT") {
      const digest = `sha256:${createHash("sha256").update(held).digest("hex")}`;
      if (digest !== searchParams.get("digest")) return void response.writeHead(400).end();
      blobs.set(digest, held);
      return void response.writeHead(201).end();
    }
    if (!String(request.headers["content-range"]).startsWith(`${held.byteLength}-`))
      return void response.writeHead(416, { range: range() }).end();
    const parts = [held];
    try {
      for await (const part of request as AsyncIterable<Buffer>) {
        parts.push(part);
        if (partMs > 0) await systemClock.sleep(partMs);
      }
    } finally {
      uploads.set(name, Buffer.concat(parts));
    }
    return void response.writeHead(202, { location: pathname, range: range() }).end();
  };
  const server = createServer((request, response) => {
    answer(request, response).catch(() => response.destroy());
  });
  await new Promise<void>((resolve) => {
    server.listen(0, "127.0.0.1", resolve);
  });
  return {
    port: (server.address() as AddressInfo).port,
    blobs,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => {
        server.close(resolve);
      });
    },
  };
}
