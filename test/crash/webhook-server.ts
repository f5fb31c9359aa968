/**
 * A server for the test of webhooks under kill -9: times of seconds are milliseconds. Takes the database's
 * address and the data directory; prints its own address.
 */
import { startServer } from "../../server/src/main.ts";

const [databaseUrl = "", dataDirectory = ""] = process.argv.slice(2);
const server = await startServer({
  listen: { host: "127.0.0.1", port: 0 },
  databaseUrl,
  dataDirectory,
  plansUrl: null,
  portsPerMachine: 4,
  machinesUrl: null,
  publicUrl: null,
  logLevel: "error",
  joinToken: null,
  cpuOvercommit: null,
  memoryOvercommit: null,
  allowedRegistries: null,
  registryMirrors: new Map(),
  insecureRegistries: [],
  nodeListen: null,
  nodeAddresses: null,
  trustedProxies: [],
  connectionsPerAddress: null,
  expectsNode: false,
  invoiceGraceHours: 72,
  stopDelaySeconds: 0,
  auditDays: 365,
  webhookNetworks: ["127.0.0.0/8"],
  webhookHttp: true,
  registry: null,
  registryCredentials: null,
  webhookTimes: { retryMs: 20, leaseMs: 1_000 },
});
process.stdout.write(`${server.url}\n`);
