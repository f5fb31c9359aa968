/**
 * Every setting of every program, declared once: environment variable, flag, default, meaning, parser.
 *
 * Always:
 * - A flag overrides the environment, which overrides the default.
 * - Each program parses its settings once at start into a frozen object.
 * - A bad value stops the start; the error shows the name, the value and what was expected.
 *
 * docs/configuration.md is generated from this table.
 */

import { PORTS_PER_MACHINE_DEFAULT, PORTS_PER_MACHINE_MAX } from "./limits.ts";
import { parseAllowedRegistries } from "./registries.ts";
import type { Environment, Setting } from "./setting.ts";
import {
  choice,
  type ListenAddress,
  parseList,
  parseListenAddress,
  parseMirrors,
  parseBlockedNetworks,
  parseNetworks,
  parseOrigin,
  parseRatio,
  parseRegistries,
  parseRegistryUrl,
} from "./setting-values.ts";

export type { Environment, Program, Setting } from "./setting.ts";

const home = (environment: Environment): string => environment["HOME"] || "/var/lib";

const setting = <T>(record: Setting<T>): Setting<T> => record;

function wholeNumber(value: string, from: number, to: number): number {
  const number = Number(value);
  if (!Number.isInteger(number) || number < from || number > to || value === "")
    throw new Error(`expected a whole number from ${from} to ${to}`);
  return number;
}

export const settings = {
  listen: setting<ListenAddress>({
    env: "FLOTILLA_LISTEN",
    flag: "listen",
    programs: ["up", "server", "ingress"],
    meaning: "where the API, or the ingress as its own process, listens",
    defaultText: "127.0.0.1:8080",
    parse: (value) => parseListenAddress(value ?? "127.0.0.1:8080"),
  }),
  dataDirectory: setting<string>({
    env: "FLOTILLA_DATA_DIR",
    flag: "data-dir",
    programs: ["up", "server", "node", "e2b", "cli"],
    meaning: "where persistent data is kept: database, keys, images, disks",
    defaultText: "$XDG_DATA_HOME/flotilla, else ~/.local/share/flotilla",
    parse: (value, environment) =>
      value ?? `${environment["XDG_DATA_HOME"] || `${home(environment)}/.local/share`}/flotilla`,
  }),
  cacheDirectory: setting<string>({
    env: "FLOTILLA_CACHE_DIR",
    flag: "cache-dir",
    programs: ["up", "node", "cli"],
    meaning: "where set-up keeps files that it can make again: guest kernel, guest agent, files for local images",
    defaultText: "$XDG_CACHE_HOME/flotilla, else ~/.cache/flotilla",
    parse: (value, environment) =>
      value ?? `${environment["XDG_CACHE_HOME"] || `${home(environment)}/.cache`}/flotilla`,
  }),
  databaseUrl: setting<string | null>({
    env: "DATABASE_URL",
    programs: ["up", "server", "ingress", "cli"],
    meaning:
      "an external PostgreSQL (15 or newer), with one host or several, of which the primary is used: postgres://user@db1,db2/name; without it the server runs its own in the data directory; `flotilla ingress` needs it, `flotilla backup` and `restore` use it",
    defaultText: "an embedded PostgreSQL",
    isSecret: true,
    parse: (value) => {
      if (value === undefined) return null;
      if (!/^postgres(ql)?:\/\//.test(value)) throw new Error("expected postgres://user@host:port/database");
      return value;
    },
  }),
  plansUrl: setting<string | null>({
    env: "FLOTILLA_PLANS_URL",
    flag: "plans-url",
    programs: ["up", "server"],
    meaning: "the page that is named by refusals over a plan's ceiling",
    defaultText: "none: they say to ask the operator",
    parse: (value) => {
      if (value === undefined) return null;
      if (!URL.canParse(value) || !/^https?:/.test(value)) throw new Error("expected an http:// or https:// address");
      return value;
    },
  }),
  portsPerMachine: setting<number>({
    env: "FLOTILLA_PORTS_PER_MACHINE",
    flag: "ports-per-machine",
    programs: ["up", "server"],
    meaning: `how many ports a machine may publish, at most ${PORTS_PER_MACHINE_MAX}`,
    defaultText: String(PORTS_PER_MACHINE_DEFAULT),
    parse: (value) => wholeNumber(value ?? String(PORTS_PER_MACHINE_DEFAULT), 0, PORTS_PER_MACHINE_MAX),
  }),
  invoiceGraceHours: setting<number>({
    env: "FLOTILLA_INVOICE_GRACE_HOURS",
    flag: "invoice-grace-hours",
    programs: ["up", "server"],
    meaning:
      "how long after the end of a month late reports still change its invoice, before it becomes final; from 1 to 648; the same on every server",
    defaultText: "72",
    parse: (value) => wholeNumber(value ?? "72", 1, 648),
  }),
  publicUrl: setting<string | null>({
    env: "FLOTILLA_PUBLIC_URL",
    flag: "public-url",
    programs: ["up", "server", "ingress"],
    meaning:
      "the address under which clients reach the server, if it is not where it listens: behind a proxy, for example",
    defaultText: "where it listens",
    parse: (value) => (value === undefined ? null : parseOrigin(value)),
  }),
  machinesUrl: setting<string | null>({
    env: "FLOTILLA_MACHINES_URL",
    flag: "machines-url",
    programs: ["up", "server", "ingress"],
    meaning:
      "gives each machine its own host: with https://machines.example.com the machine `web` is at https://web.machines.example.com; " +
      "http://localhost:8080 needs no DNS (docs/networking.md)",
    defaultText: "none: machines are below /proxy of the server",
    parse: (value) => (value === undefined ? null : parseOrigin(value)),
  }),
  logLevel: setting<"debug" | "info" | "warn" | "error" | "silent">({
    env: "FLOTILLA_LOG_LEVEL",
    flag: "log-level",
    programs: ["up", "server", "ingress", "node", "e2b"],
    meaning:
      "the lowest level that is logged, as JSON lines on standard error (`flotilla node` on a terminal: as text)",
    defaultText: "info",
    parse: choice(["debug", "info", "warn", "error", "silent"], "info"),
  }),
  cpuOvercommit: setting<number | null>({
    env: "FLOTILLA_CPU_OVERCOMMIT",
    flag: "cpu-overcommit",
    programs: ["up", "server"],
    meaning:
      "how many virtual processors a node may promise to running machines for each real one, such as 8; the same on all servers",
    defaultText: "any number",
    parse: parseRatio,
  }),
  memoryOvercommit: setting<number | null>({
    env: "FLOTILLA_MEMORY_OVERCOMMIT",
    flag: "memory-overcommit",
    programs: ["up", "server"],
    meaning: "how many times its memory a node may promise to running machines, such as 1.5; the same on all servers",
    defaultText: "any number: a start is refused by the memory that is left",
    parse: parseRatio,
  }),
  allowedRegistries: setting<readonly string[] | null>({
    env: "FLOTILLA_ALLOWED_REGISTRIES",
    flag: "allowed-registries",
    programs: ["up", "server", "node"],
    meaning:
      "registries that images may come from: host[:port], host:*, *.suffix or * for any, separated by commas; only a full " +
      "host may be at a private address (docs/images.md)",
    defaultText: "docker.io, ghcr.io, quay.io and other well-known public ones",
    parse: (value) => (value === undefined ? null : parseAllowedRegistries(value)),
  }),
  registryMirrors: setting<ReadonlyMap<string, string>>({
    env: "FLOTILLA_REGISTRY_MIRRORS",
    flag: "registry-mirrors",
    programs: ["up", "server", "node"],
    meaning: "mirrors, which are asked first instead of the registry: docker.io=http://127.0.0.1:5000,…",
    defaultText: "none",
    parse: (value) => parseMirrors(value ?? ""),
  }),
  insecureRegistries: setting<readonly string[]>({
    env: "FLOTILLA_INSECURE_REGISTRIES",
    flag: "insecure-registries",
    programs: ["up", "server", "node"],
    meaning: "registries (host:port, separated by commas) accessed over plain HTTP; loopback always is",
    defaultText: "none",
    parse: (value) => parseRegistries(value ?? ""),
  }),
  registry: setting<string | null>({
    env: "FLOTILLA_REGISTRY",
    flag: "registry",
    programs: ["up", "server"],
    meaning:
      "where packages are stored: `embedded` in a registry that the server runs in its data directory, `none`, or another " +
      "registry, such as https://registry.example.com/flotilla, which only servers write to (docs/packages.md); the same on all servers",
    defaultText: "`embedded` without DATABASE_URL; else `none`",
    parse: (value) =>
      value === undefined || value === "embedded" || value === "none" ? (value ?? null) : parseRegistryUrl(value),
  }),
  registryCredentials: setting<string | null>({
    env: "FLOTILLA_REGISTRY_CREDENTIALS",
    flag: "registry-credentials",
    programs: ["up", "server", "node"],
    meaning:
      "a file in the form of docker's config.json with credentials of registries: for a node of those that images come from, for a " +
      "server of FLOTILLA_REGISTRY",
    defaultText: "none",
    parse: (value) => value ?? null,
  }),
  imageCacheGb: setting<number>({
    env: "FLOTILLA_IMAGE_CACHE_GB",
    flag: "image-cache-gb",
    programs: ["up", "node"],
    meaning: "how much disk unpacked images may use before unused ones are removed",
    defaultText: "50",
    parse: (value) => {
      const number = Number(value ?? "50");
      if (!Number.isFinite(number) || number <= 0) throw new Error("expected a number of gigabytes above 0");
      return number;
    },
  }),
  publishOnLoopback: setting<boolean>({
    env: "FLOTILLA_PUBLISH_ON_LOOPBACK",
    flag: "publish-on-loopback",
    programs: ["up", "node"],
    meaning:
      "`yes` opens machines' published ports on the node's 127.0.0.1 too, as `hostPort`: without a key, for every user and " +
      "program of the host",
    defaultText: "no",
    parse: (value) => choice(["yes", "no"], "no")(value) === "yes",
  }),
  blockedNetworks: setting<readonly string[]>({
    env: "FLOTILLA_BLOCKED_NETWORKS",
    flag: "blocked-networks",
    programs: ["up", "node"],
    meaning:
      "networks (separated by commas) that no machine may connect to, whatever its own `network` says, such as your own; " +
      "`private` means all private ones (docs/networking.md)",
    defaultText: "none",
    parse: (value) => parseBlockedNetworks(value ?? "none"),
  }),
  driver: setting<"qemu" | "fake">({
    env: "FLOTILLA_DRIVER",
    flag: "driver",
    programs: ["up", "node"],
    meaning: "what runs machines; `fake` runs none and is for tests of the control plane",
    defaultText: "qemu",
    parse: choice(["qemu", "fake"], "qemu"),
  }),
  accelerator: setting<"auto" | "kvm" | "tcg">({
    env: "FLOTILLA_ACCELERATOR",
    flag: "accelerator",
    programs: ["up", "node"],
    meaning: "hardware virtualization (kvm) or emulation (tcg); auto probes by booting a tiny guest",
    defaultText: "auto",
    parse: choice(["auto", "kvm", "tcg"], "auto"),
  }),
  nodeId: setting<string | null>({
    env: "FLOTILLA_NODE_ID",
    flag: "node-id",
    programs: ["up", "node"],
    meaning: "the node's id in the cluster",
    defaultText: "the host's name",
    parse: (value) => {
      if (value !== undefined && !/^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/.test(value))
        throw new Error("expected letters, digits, '.', '_', '-'");
      return value ?? null;
    },
  }),
  serverUrl: setting<string>({
    env: "FLOTILLA_URL",
    flag: "url",
    programs: ["node", "e2b", "cli"],
    meaning: "the server to talk to",
    defaultText: "what `flotilla login` saved, else http://127.0.0.1:8080",
    parse: (value) => {
      const url = value ?? "http://127.0.0.1:8080";
      if (!/^https?:\/\//.test(url)) throw new Error("expected http://host:port or https://host");
      return url.replace(/\/+$/, "");
    },
  }),
  joinToken: setting<string | null>({
    env: "FLOTILLA_JOIN_TOKEN",
    programs: ["server", "node"],
    meaning:
      "lets a node register, once; `flotilla token create` makes one. A server with this setting accepts it from the node on " +
      "its host",
    defaultText: "`flotilla up` makes a new one at each start",
    isSecret: true,
    parse: (value) => value ?? null,
  }),
  nodeListen: setting<ListenAddress | null>({
    env: "FLOTILLA_NODE_LISTEN",
    flag: "node-listen",
    programs: ["up", "server", "ingress"],
    meaning:
      "where other nodes connect, with TLS, such as 0.0.0.0:8443; they get it as FLOTILLA_URL=https://host:8443 " +
      "(docs/hosts.md)",
    defaultText:
      "`flotilla up` without DATABASE_URL: on loopback at the API's port and 363, so 127.0.0.1:8443; else nowhere",
    parse: (value) => (value === undefined ? null : parseListenAddress(value)),
  }),
  nodeAddresses: setting<readonly string[] | null>({
    env: "FLOTILLA_NODE_ADDRESSES",
    flag: "node-addresses",
    programs: ["up", "server", "ingress"],
    meaning:
      "addresses (host:port, separated by commas) under which nodes on other hosts reach this server's FLOTILLA_NODE_LISTEN: " +
      "of this server, not of a balancer in front of several",
    defaultText: "where it listens; with 0.0.0.0 or [::] every address of the host",
    parse: (value) => {
      if (value === undefined) return null;
      const addresses = parseList(value);
      for (const address of addresses) parseListenAddress(address);
      if (addresses.length === 0 || addresses.length > 16) throw new Error("expected 1 to 16 addresses");
      return addresses;
    },
  }),
  linkListen: setting<ListenAddress | null>({
    env: "FLOTILLA_LINK_LISTEN",
    flag: "link-listen",
    programs: ["node"],
    meaning:
      "makes a node on another host reachable at this address (host:port), where servers then connect with TLS, instead of " +
      "over connections that the node opens",
    defaultText: "none: the node dials out",
    parse: (value) => {
      if (value === undefined) return null;
      const address = parseListenAddress(value);
      if (address.host === "0.0.0.0" || address.host === "::" || address.port === 0)
        throw new Error("expected the address and port under which servers reach this node, such as 10.0.0.7:8444");
      return address;
    },
  }),
  nodeSocket: setting<string | null>({
    env: "FLOTILLA_NODE_SOCKET",
    flag: "node-socket",
    programs: ["node"],
    meaning:
      "the Unix socket on which this host's server listens for nodes; the node of that host is accepted nowhere else",
    defaultText: "none; `flotilla up` sets it",
    parse: (value) => value ?? null,
  }),
  trustedProxies: setting<readonly string[]>({
    env: "FLOTILLA_TRUSTED_PROXIES",
    flag: "trusted-proxies",
    programs: ["up", "server", "ingress"],
    meaning:
      "addresses and networks (separated by commas) of proxies in front of this server, whose X-Forwarded headers are trusted; " +
      "limits for each address then count callers, not the proxy",
    defaultText: "127.0.0.0/8,::1: programs of this host; `none` trusts no proxy",
    parse: (value) => parseNetworks(value ?? "127.0.0.0/8,::1"),
  }),
  connectionsPerAddress: setting<number | null>({
    env: "FLOTILLA_CONNECTIONS_PER_ADDRESS",
    flag: "connections-per-address",
    programs: ["up", "server", "ingress"],
    meaning: "how many connections one address may have open to the API, if it is not a trusted proxy",
    defaultText: "a quarter of all, which depends on how many files the process may open",
    parse: (value) => {
      if (value === undefined) return null;
      if (!/^[1-9]\d{0,6}$/.test(value)) throw new Error("expected a number of connections above 0");
      return Number(value);
    },
  }),
  stopDelaySeconds: setting<number>({
    env: "FLOTILLA_STOP_DELAY_SECONDS",
    flag: "stop-delay-seconds",
    programs: ["server", "ingress"],
    meaning:
      "how long a program that is stopped still serves while its /readyz fails, at most 300: longer than a load balancer needs to notice",
    defaultText: "0",
    parse: (value) => wholeNumber(value ?? "0", 0, 300),
  }),
  auditDays: setting<number>({
    env: "FLOTILLA_AUDIT_DAYS",
    flag: "audit-days",
    programs: ["up", "server"],
    meaning: "how many days recorded calls are kept in the audit log",
    defaultText: "365",
    parse: (value) => {
      if (!/^[1-9]\d{0,4}$/.test(value ?? "365")) throw new Error("expected a number of days above 0");
      return Number(value ?? "365");
    },
  }),
  webhookNetworks: setting<readonly string[]>({
    env: "FLOTILLA_WEBHOOK_NETWORKS",
    flag: "webhook-networks",
    programs: ["up", "server"],
    meaning:
      "private addresses and networks (separated by commas) that webhooks may be sent to, besides public addresses; tenants " +
      "choose the addresses, so list nothing that trusts its network",
    defaultText: "none",
    parse: (value) => parseNetworks(value ?? "none"),
  }),
  webhookHttp: setting<boolean>({
    env: "FLOTILLA_WEBHOOK_HTTP",
    flag: "webhook-http",
    programs: ["up", "server"],
    meaning: "`yes` allows webhooks with http:// addresses: what is sent is signed, and can be read on its way",
    defaultText: "no",
    parse: (value) => choice(["yes", "no"], "no")(value) === "yes",
  }),
  expectsNode: setting<boolean>({
    env: "FLOTILLA_EXPECTS_NODE",
    programs: ["server"],
    meaning: "`1`: /readyz fails until a node has reported to this server",
    defaultText: "0; `flotilla up` sets 1",
    parse: (value) => choice(["0", "1"], "0")(value) === "1",
  }),
  serverUid: setting<number | null>({
    env: "FLOTILLA_SERVER_UID",
    flag: "server-uid",
    programs: ["node"],
    meaning: "the user id of this host's server, which may use the node's socket",
    defaultText: "the node's own; `flotilla up` sets it where it starts the node through sudo",
    parse: (value) => {
      if (value === undefined) return null;
      if (!/^\d{1,9}$/.test(value)) throw new Error("expected a user id");
      return Number(value);
    },
  }),
  e2bListen: setting<ListenAddress | null>({
    env: "FLOTILLA_E2B_LISTEN",
    flag: "e2b-listen",
    programs: ["up", "e2b"],
    meaning: "where the gateway for E2B's clients listens, such as 127.0.0.1:3000 (docs/e2b.md)",
    defaultText: "`flotilla e2b`: 127.0.0.1:3000; `flotilla up`: nowhere",
    parse: (value) => (value === undefined ? null : parseListenAddress(value)),
  }),
  e2bDomain: setting<string | null>({
    env: "FLOTILLA_E2B_DOMAIN",
    flag: "e2b-domain",
    programs: ["up", "e2b"],
    meaning:
      "the domain below which each port of a sandbox has its host, 3000-ID.DOMAIN, and whose hosts lead to the gateway; it may have a port",
    defaultText: "localhost, with the gateway's port",
    parse: (value) => {
      if (value === undefined) return null;
      if (!/^[a-z0-9-]+(\.[a-z0-9-]+)*(:\d{1,5})?$/.test(value))
        throw new Error("expected a domain such as e2b.example.com");
      return value;
    },
  }),
  apiKey: setting<string | null>({
    env: "FLOTILLA_API_KEY",
    programs: ["cli"],
    meaning: "the key to call with",
    defaultText: "what `flotilla login` saved, else the admin key of a Flotilla on this machine",
    isSecret: true,
    parse: (value) => value ?? null,
  }),
} as const;

export type Settings = typeof settings;
export type SettingName = keyof Settings;
export type SettingValue<Name extends SettingName> = ReturnType<Settings[Name]["parse"]>;

/** Parses the named settings from flags and environment. Throws an Error for users at the first bad value. */
export function parseSettings<const Name extends SettingName>(
  names: readonly Name[],
  environment: Environment,
  flags: Environment = {},
): { readonly [N in Name]: SettingValue<N> } {
  const parsed: Partial<Record<SettingName, unknown>> = {};
  for (const name of names) {
    const declared: Setting<unknown> = settings[name];
    const flagValue = declared.flag === undefined ? undefined : flags[declared.flag];
    // An empty variable counts as not set: shells and unit files make that easy to do by accident.
    const value = flagValue ?? (environment[declared.env] || undefined);
    try {
      parsed[name] = declared.parse(value, environment);
    } catch (error) {
      const source = flagValue === undefined ? declared.env : `--${declared.flag}`;
      const shown = declared.isSecret ? "(hidden)" : `"${value}"`;
      throw new Error(`${source} is ${shown}: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  return Object.freeze(parsed) as { readonly [N in Name]: SettingValue<N> };
}
