/**
 * The addresses at which `flotilla up` lets its server listen: whether they are free, and how this machine
 * reaches the API.
 *
 * The check comes before anything is started, because a port in use is the likeliest reason for a failed
 * start and deserves a better message than a child's exit code. Another program may take the port after the
 * check; the server then reports it itself.
 */
import { createServer } from "node:net";
import type { Clock } from "@flotilla/base/clock";
import type { ListenAddress } from "@flotilla/contract/setting-values";
import { Flotilla } from "@flotilla/sdk";
import { Failure } from "../failure.ts";

export const addressText = ({ host, port }: ListenAddress): string =>
  host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;

/** The server of a killed `up` listens until it notices, which takes milliseconds on an idle host. */
const WAIT_MS = 2_000;
const RETRY_MS = 50;
const PORTS_TRIED = 20;
const PORT_MAX = 65_535;

/** Waits a moment for the address; throws a Failure that names what uses it, as far as that is known. */
export async function requireFree(listen: ListenAddress, clock: Clock): Promise<void> {
  if (listen.port === 0) return;
  const deadline = clock.monotonic() + WAIT_MS;
  let error = await tryListen(listen);
  while (error?.code === "EADDRINUSE" && clock.monotonic() < deadline) {
    await clock.sleep(RETRY_MS);
    error = await tryListen(listen);
  }
  if (error === null) return;
  const address = addressText(listen);
  if (error.code === "EADDRINUSE") {
    const other = `--listen ${addressText({ ...listen, port: await freePort(listen) })}`;
    throw (await answersAsFlotilla(localUrl(`http://${address}`)))
      ? new Failure(
          `a Flotilla already runs at ${address}`,
          `use that one, stop it, or run a second one beside it: ${other} --data-dir DIRECTORY`,
        )
      : new Failure(`${address} is in use by another program`, `stop that program, or choose another port: ${other}`);
  }
  if (error.code === "EACCES") {
    throw new Failure(`this user may not listen on ${address}`, "choose a port above 1023 with --listen");
  }
  throw new Failure(`cannot listen on ${address}: ${error.message}`, "choose an address of this machine with --listen");
}

/** From the port of the API to the one for nodes: 8443 for 8080. Two Flotillas on a host have two of each. */
const TO_NODE_PORT = 363;

/**
 * Where nodes connect unless that is configured: on loopback, at a port that a restart does not change. null:
 * the API's port is too high for one.
 */
export function besideForNodes({ port }: ListenAddress): ListenAddress | null {
  const beside = port === 0 ? 0 : port + TO_NODE_PORT;
  return beside > PORT_MAX ? null : { host: "127.0.0.1", port: beside };
}

export const isFree = async (listen: ListenAddress): Promise<boolean> => (await tryListen(listen)) === null;

/** An address that listens on all interfaces is reached from here through loopback. */
export function localUrl(url: string): string {
  const address = new URL(url);
  if (address.hostname === "0.0.0.0") address.hostname = "127.0.0.1";
  if (address.hostname === "[::]") address.hostname = "[::1]";
  return address.href.replace(/\/$/, "");
}

function tryListen({ host, port }: ListenAddress): Promise<NodeJS.ErrnoException | null> {
  const probe = createServer();
  return new Promise((resolve) => {
    probe.once("error", resolve);
    probe.listen({ host, port }, () => probe.close(() => resolve(null)));
  });
}

/** One of the ports after this one; 0, which lets the system choose, when all of them are in use. */
async function freePort({ host, port }: ListenAddress): Promise<number> {
  for (let next = port + 1; next <= Math.min(port + PORTS_TRIED, PORT_MAX); next++)
    if ((await tryListen({ host, port: next })) === null) return next;
  return 0;
}

async function answersAsFlotilla(url: string): Promise<boolean> {
  const health = await new Flotilla({ url, retries: 0 }).getHealth({ timeoutMs: 2000 }).catch(() => null);
  return typeof health?.clusterId === "string";
}
