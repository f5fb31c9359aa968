/**
 * The ingress for a test file, in its process, beside a server on the same database.
 */
import { after } from "node:test";
import { type IngressOptions, type RunningIngress, startIngress } from "../../src/ingress-main.ts";
import type { TestServer } from "./server.ts";

/** Stopped after the tests of the file. Call it after startTestServer. */
export async function startTestIngress(
  { databaseUrl }: TestServer,
  options: Partial<IngressOptions> = {},
): Promise<RunningIngress> {
  const ingress = await startIngress({
    listen: { host: "127.0.0.1", port: 0 },
    databaseUrl,
    machinesUrl: null,
    publicUrl: null,
    logLevel: "error",
    nodeListen: null,
    nodeAddresses: null,
    trustedProxies: ["127.0.0.0/8", "::1"],
    connectionsPerAddress: null,
    stopDelaySeconds: 0,
    ...options,
  });
  after(() => ingress.stop());
  return ingress;
}
