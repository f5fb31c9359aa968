/**
 * Two servers, two ingresses and two nodes of one fleet, each as its own process; the nodes are as on other
 * hosts: they park their connections at each server and ingress.
 *
 * Always: a program that is stopped gets SIGTERM, as from an init, and serves for STOP_DELAY_SECONDS more
 * while its /readyz fails.
 */
import { join } from "node:path";
import { sharedDatabaseUrl } from "../support/database.ts";
import { type Flotilla, portToReturnTo, Program, startFlotilla } from "../support/flotilla.ts";
import { until } from "../support/until.ts";

const PAIR = [0, 1] as const;
const STOP_DELAY_SECONDS = 1;
const DEADLINE_MS = 60_000;
const QUIET = { FLOTILLA_LOG_LEVEL: "warn", FLOTILLA_PUBLIC_URL: "http://fleet.example.net:8080" };

/** A program that serves the app, and where. */
export interface Serving {
  readonly program: Program;
  readonly url: string;
}

export interface Fleet extends AsyncDisposable {
  readonly flotilla: Flotilla;
  readonly nodeIds: readonly string[];
  readonly servers: readonly Serving[];
  readonly ingresses: readonly Serving[];
}

const ports = (): Promise<readonly [number, number]> => Promise.all([portToReturnTo(), portToReturnTo()]);

export async function startFleet(): Promise<Fleet> {
  const databaseUrl = await sharedDatabaseUrl();
  const [forNodes, forIngressNodes, forIngresses] = [await ports(), await ports(), await ports()];
  const common = { ...QUIET, DATABASE_URL: databaseUrl, FLOTILLA_STOP_DELAY_SECONDS: String(STOP_DELAY_SECONDS) };
  let started = 0;
  const serverEnvironment = (): Readonly<Record<string, string>> => ({
    ...{ ...common, FLOTILLA_JOIN_TOKEN: "" },
    FLOTILLA_NODE_LISTEN: `127.0.0.1:${forNodes[started++ % forNodes.length]}`,
  });
  const flotilla = await startFlotilla({ servers: PAIR.length, nodes: 0, databaseUrl, serverEnvironment });
  const ingresses = PAIR.map((index) => {
    const name = `ingress-${index}`;
    const program = new Program(name, "server/src/ingress-main.ts", join(flotilla.directory, name), {
      ...common,
      FLOTILLA_LISTEN: `127.0.0.1:${forIngresses[index]}`,
      FLOTILLA_NODE_LISTEN: `127.0.0.1:${forIngressNodes[index]}`,
    });
    return { program, url: `http://127.0.0.1:${forIngresses[index]}` };
  });
  const { token } = (await flotilla.client().post("/v1/tokens", { maxUses: PAIR.length })).json;
  const nodes = PAIR.map((index) => {
    const directory = join(flotilla.directory, `node-${index}`);
    return new Program(`node-${index}`, "node/src/main.ts", directory, {
      ...QUIET,
      ...{ FLOTILLA_DATA_DIR: directory, FLOTILLA_NODE_ID: `node-${index}`, FLOTILLA_DRIVER: "fake" },
      ...{ FLOTILLA_URL: `https://127.0.0.1:${forNodes[index]}`, FLOTILLA_JOIN_TOKEN: token },
    });
  });
  const others = [...nodes, ...ingresses.map(({ program }) => program)];
  const fleet: Fleet = {
    flotilla,
    nodeIds: nodes.map(({ name }) => name),
    servers: flotilla.servers.map((program, index) => ({ program, url: flotilla.urls[index] ?? "" })),
    ingresses,
    async [Symbol.asyncDispose]() {
      await Promise.all(others.map((program) => program.stop().catch(() => program.kill())));
      await flotilla[Symbol.asyncDispose]();
    },
  };
  try {
    for (const program of others) await program.start();
    for (const ingress of ingresses) await untilReady(ingress);
    const areReady = async (): Promise<boolean> => {
      const known = (await flotilla.client().get("/v1/nodes")).json as { status: string }[];
      return known.filter(({ status }) => status === "ready").length === nodes.length;
    };
    await until(areReady, { what: "the nodes to be ready", deadlineMs: DEADLINE_MS });
  } catch (error) {
    await fleet[Symbol.asyncDispose]();
    throw error;
  }
  return fleet;
}

export async function restart(serving: Serving): Promise<void> {
  await serving.program.stop();
  await serving.program.start();
  await untilReady(serving);
}

function untilReady({ program, url }: Serving): Promise<boolean> {
  const isReady = async (): Promise<boolean> => {
    await program.mustRun();
    return (await fetch(`${url}/readyz`)).ok;
  };
  return until(isReady, { what: `${program.name} to be ready`, deadlineMs: DEADLINE_MS });
}
