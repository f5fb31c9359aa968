/**
 * The check that a port of the guest takes a connection.
 */
import type { Duplex } from "node:stream";
import { reasonOf } from "@flotilla/base/abort";
import type { CheckRun } from "./check-run.ts";

export async function checkTcp(run: CheckRun): Promise<void> {
  (await connect(run)).destroy();
}

/** A connection to the port of the check. The caller need not handle its errors, and destroys it. */
export async function connect({ check, network, signal, awaits }: CheckRun): Promise<Duplex> {
  const { port } = check;
  if (port === null) throw new Error("its check names no port");
  if (network === null) throw new Error("the machine has no network");
  awaits(`port ${port} did not take a connection`);
  let connection: Duplex;
  try {
    connection = await network.dial(port, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ECONNREFUSED") throw new Error(`nothing listens on port ${port}`);
    throw error;
  }
  connection.on("error", () => undefined);
  if (!signal.aborted) return connection;
  // It was established at the timeout.
  connection.destroy();
  throw reasonOf(signal);
}
