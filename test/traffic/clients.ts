/**
 * The clients of an app, as their own process: they ask it without rest until their parent stops them, and
 * count how each request ends.
 *
 *     node test/traffic/clients.ts '{"urls":[…],"host":…,"slowMs":…,"perSecond":…}'
 *
 * Its parent says by IPC which change begins, and gets a Report for each of its messages.
 */
import { monotonic, pause } from "../support/until.ts";
import { type Asked, Balancer } from "./balancer.ts";
import { keepListening, keepTalking } from "./lasting.ts";
import { Tally } from "./tally.ts";

export interface Settings {
  readonly urls: readonly string[];
  readonly host: string;
  /** How long slow requests ask their answers to take. */
  readonly slowMs: number;
  /** How many quick ones are sent, by all clients together. */
  readonly perSecond: number;
}

/** `during`: a change begins. `stop`: everything ends. Neither: the parent wants a report only. */
export interface Told {
  readonly during?: string;
  readonly stop?: boolean;
}

const bodyOf = (number: number, bytes: number): Buffer => Buffer.alloc(bytes, `${number} `);
const UPLOAD_BYTES = 16 * 1024;

/** Clients of each kind of quick request: enough for the pace on a host that has other work. */
const QUICK_CLIENTS = 3;
/** The kinds of quick requests. */
const QUICK: readonly ((number: number) => Asked)[] = [
  ...Array.from({ length: 4 }, () => (number: number) => asked("GET", `/kept/${number}`)),
  ...Array.from({ length: 2 }, () => (number: number) => ({ ...asked("GET", `/new/${number}`), isNew: true })),
  (number) => ({ ...asked("POST", `/kept/${number}`), body: bodyOf(number, 1 + (number % UPLOAD_BYTES)) }),
  // Without a length, so it is sent in chunks.
  (number) => ({ ...asked("POST", `/new/${number}`), isNew: true, body: bodyOf(number, 4 * UPLOAD_BYTES) }),
];
/** Two wait for their head, two for the rest, each with its own connection or one that is kept. */
const SLOW = ["head-ms", "body-ms"].flatMap((name) => [true, false].map((isNew) => ({ name, isNew })));
/** Clients of each kind of slow request. */
const SLOW_CLIENTS = 3;
const LASTING_CLIENTS = 4;

const asked = (method: Asked["method"], path: string): Asked => ({ method, path, isNew: false, lastsMs: 0 });

const { urls, host, slowMs, perSecond } = JSON.parse(process.argv[2] ?? "") as Settings;
const tally = new Tally(monotonic);
const balancer = new Balancer(urls, host, tally);
let isStopped = false;
const isOver = (): boolean => isStopped;

async function askQuickly(make: (number: number) => Asked): Promise<void> {
  const periodMs = (QUICK_CLIENTS * QUICK.length * 1000) / perSecond;
  for (let number = 1; !isStopped; number += 1) {
    const began = monotonic();
    await balancer.ask(make(number));
    await pause(Math.max(0, periodMs - (monotonic() - began)));
  }
}

async function askSlowly({ name, isNew }: (typeof SLOW)[number], client: number): Promise<void> {
  // The first is shorter, so that some end at any time.
  let lastsMs = Math.round((slowMs * (client + 1)) / SLOW_CLIENTS);
  for (let number = 1; !isStopped; number += 1) {
    await balancer.ask({ ...asked("GET", `/slow/${number}?${name}=${lastsMs}`), isNew, lastsMs });
    lastsMs = slowMs;
  }
}

const running = [
  ...Array.from({ length: QUICK_CLIENTS }, () => QUICK.map(askQuickly)).flat(),
  ...SLOW.flatMap((kind) => Array.from({ length: SLOW_CLIENTS }, (_, client) => askSlowly(kind, client))),
  ...Array.from({ length: LASTING_CLIENTS }, (_, client) => [
    keepTalking({ balancer, isOver, name: `talker ${client}` }),
    keepListening({ balancer, isOver, name: `listener ${client}` }),
  ]).flat(),
];

process.on("message", ({ during, stop = false }: Told) => {
  if (during !== undefined) tally.begin(during);
  if (!stop) return void process.send?.(tally.report());
  isStopped = true;
  void Promise.all(running).then(() => {
    balancer.close();
    process.send?.(tally.report(), undefined, undefined, () => process.exit(0));
  });
});
process.on("disconnect", () => process.exit(0));
