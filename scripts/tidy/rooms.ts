/**
 * Which room of a program may import which: a room is a folder of its `src`, or a file beside them.
 *
 * The table is ordered from the lowest room up: a room imports only rooms before it, so there is no cycle.
 * Types count, because code that names another room's type cannot be understood without it. Tests may import
 * anything.
 *
 * A new import between rooms is a new entry in this table, and is reviewed as a change of the structure; an
 * unused entry is a finding too.
 */
import type { Finding, Tree } from "./tree.ts";

export interface Program {
  /** What every other room may import; ordered as well. */
  readonly ground: readonly string[];
  /** What each room may import besides the ground. */
  readonly rooms: Readonly<Record<string, readonly string[]>>;
  /** Files that connect the rooms: they may import all, and no room imports them. */
  readonly top: readonly string[];
}

export const PROGRAMS: Readonly<Record<string, Program>> = {
  server: {
    ground: ["missing.ts", "db", "write-events.ts", "context.ts", "fairness"],
    rooms: {
      "config.ts": [],
      "ids.ts": [],
      "log-output.ts": [],
      "log.ts": ["log-output.ts"],
      "secrets.ts": [],
      "stop.ts": [],
      "embedded-postgres": [],
      auth: [],
      json: [],
      link: ["auth", "json", "secrets.ts"],
      hosts: [],
      placement: [],
      http: ["auth"],
      api: ["auth", "http", "json"],
      "family.ts": ["api"],
      status: ["api", "family.ts"],
      reconcilers: ["api", "family.ts"],
      usage: ["family.ts"],
      "services.ts": ["link", "placement", "secrets.ts", "usage"],
      plans: ["api", "family.ts"],
      tenants: ["api", "family.ts"],
      billing: ["api", "auth", "family.ts", "plans", "tenants", "usage"],
      account: ["api", "family.ts", "plans", "tenants", "usage"],
      apikeys: ["api", "auth", "family.ts"],
      console: ["api", "auth", "family.ts", "http"],
      audit: ["api", "auth", "family.ts"],
      operations: ["api", "family.ts"],
      events: ["api", "family.ts", "json"],
      webhooks: ["api", "events", "family.ts", "secrets.ts"],
      registry: ["api", "auth", "config.ts", "family.ts", "http", "operations", "secrets.ts", "usage"],
      machines: [
        "api",
        "auth",
        "events",
        "family.ts",
        "http",
        "link",
        "placement",
        "registry",
        "secrets.ts",
        "services.ts",
        "usage",
      ],
      branches: ["api", "auth", "family.ts", "link", "machines", "operations", "placement"],
      leases: ["api", "branches", "family.ts", "machines"],
      packages: ["api", "auth", "family.ts", "link", "machines", "operations", "registry"],
      moves: ["api", "auth", "family.ts", "link", "machines", "operations", "placement"],
      apps: ["api", "auth", "family.ts", "link", "machines", "operations", "usage"],
      ingress: ["api", "auth", "family.ts", "hosts", "http", "link", "machines", "status"],
      tokens: ["api", "family.ts", "link"],
      volumes: ["api", "family.ts"],
      pools: ["api", "auth", "family.ts", "machines"],
      nodes: [
        "api",
        "auth",
        "config.ts",
        "events",
        "family.ts",
        "http",
        "link",
        "machines",
        "moves",
        "operations",
        "placement",
        "pools",
        "tokens",
      ],
      images: ["api", "auth", "family.ts", "link", "machines", "nodes", "operations", "services.ts"],
      backup: ["config.ts", "embedded-postgres", "log.ts", "nodes", "secrets.ts", "stop.ts"],
    },
    top: ["families.ts", "assemble.ts", "ingress-main.ts", "main.ts"],
  },
  node: {
    ground: ["log.ts"],
    rooms: {
      "config.ts": [],
      "installed.ts": [],
      host: [],
      guest: [],
      network: ["guest", "host"],
      health: ["guest", "network"],
      hooks: ["guest"],
      terminals: ["guest"],
      images: ["host"],
      disks: ["host", "images"],
      memory: ["images"],
      driver: ["disks", "guest", "host", "images", "memory", "network"],
      points: ["host"],
      machines: ["disks", "driver", "guest", "health", "hooks", "host", "images", "network", "points"],
      moves: ["disks", "driver", "host", "images", "machines", "memory", "points"],
      replacing: ["driver", "machines"],
      branches: ["driver", "host", "machines", "points"],
      packages: ["disks", "images", "machines"],
      link: [
        "branches",
        "guest",
        "images",
        "machines",
        "moves",
        "network",
        "packages",
        "points",
        "replacing",
        "terminals",
      ],
      doctor: ["driver", "host"],
    },
    top: ["node-backends.ts", "agent.ts", "main.ts", "suspend-main.ts"],
  },
};

/** What to do instead of a refused import, where the table alone does not say it. */
const ADVICE: readonly { readonly from: RegExp; readonly to: RegExp; readonly text: string }[] = [
  { from: /^server\/api$/, to: /./, text: "api imports no family: let assemble.ts pass in what it needs" },
  { from: /^server\/db$/, to: /./, text: "db is below everything" },
  {
    from: /./,
    to: /^server\/reconcilers$/,
    text: "a family does not run its loops: name them in its family.ts, and write the row that the loop finds",
  },
];

const TABLE = "scripts/tidy/rooms.ts";

/** Imports between rooms that the table does not permit, unknown rooms, and unused entries of the table. */
export function checkRooms(tree: Tree): Finding[] {
  const findings: Finding[] = [];
  const used = new Set<string>();
  const unknown = new Set<string>();
  for (const source of tree.sources.values()) {
    const from = roomOf(source.path);
    if (from === null || isTest(source.path)) continue;
    if (!isKnown(from) && !unknown.has(from.name)) {
      unknown.add(from.name);
      findings.push(
        finding(source.path, 1, `${from.name} is not in the table of ${TABLE}: add it with what it imports`),
      );
    }
    for (const edge of source.imports) {
      const to = edge.target === null ? null : roomOf(edge.target);
      if (to === null || to.member !== from.member || to.room === from.room) continue;
      used.add(`${from.name} ${to.name}`);
      const message = refusalOf(from, to);
      if (message !== null) findings.push(finding(source.path, edge.line, message));
    }
  }
  return [...findings, ...unusedLines(tree, used)];
}

interface Room {
  readonly member: string;
  readonly program: Program;
  readonly room: string;
  /** `member/room`. */
  readonly name: string;
}

function roomOf(path: string): Room | null {
  const [, member = "", room = ""] = /^([a-z]+)\/src\/([^/]+)/.exec(path) ?? [];
  const program = PROGRAMS[member];
  return program === undefined ? null : { member, program, room, name: `${member}/${room}` };
}

const isKnown = ({ program, room }: Room): boolean =>
  program.top.includes(room) || program.ground.includes(room) || program.rooms[room] !== undefined;

function refusalOf(from: Room, to: Room): string | null {
  const { ground, rooms, top } = from.program;
  if (!isKnown(from) || top.includes(from.room)) return null;
  const isGround = ground.includes(from.room);
  const permitted = isGround ? ground.slice(0, ground.indexOf(from.room)) : [...ground, ...(rooms[from.room] ?? [])];
  if (permitted.includes(to.room)) return null;
  const advice = ADVICE.find((each) => each.from.test(from.name) && each.to.test(to.name))?.text;
  return `${from.name} does not import ${to.name}: ${advice ?? `move what both need below them, or change the table in ${TABLE}`}`;
}

function unusedLines(tree: Tree, used: ReadonlySet<string>): Finding[] {
  // In a partial tree, unused entries mean nothing.
  if (!tree.files.has(TABLE)) return [];
  const there = new Set([...tree.sources.keys()].map((path) => roomOf(path)?.name));
  const findings: Finding[] = [];
  for (const [member, { rooms }] of Object.entries(PROGRAMS)) {
    for (const [from, permitted] of Object.entries(rooms)) {
      for (const to of permitted) {
        const areThere = there.has(`${member}/${from}`) && there.has(`${member}/${to}`);
        if (areThere && !used.has(`${member}/${from} ${member}/${to}`))
          findings.push(
            finding(TABLE, 1, `${member}/${from} no longer imports ${member}/${to}: remove it from the table`),
          );
      }
    }
  }
  return findings;
}

const finding = (path: string, line: number, message: string): Finding => ({ path, line, rule: "room", message });

const isTest = (path: string): boolean => path.endsWith(".test.ts");
