/**
 * Tools for apps, for the logs of apps and machines, and for what everything costs.
 */
import { z } from "zod";
import { findMachine } from "../../machine/find.ts";
import { readLog } from "../read-log.ts";
import { json, text } from "../results.ts";
import { machineInput, type Tool, tool } from "../tool.ts";

const appInput = z.string().min(1).max(63).describe("the app's name");
const tailInput = z.number().int().min(1).max(10_000).default(100).describe("so many last lines");
const replicasInput = z.number().int().min(0).max(1_000);

const listApps = tool({
  name: "list_apps",
  title: "List apps",
  description: "Lists apps, which are images served by replicated instances behind one address.",
  needs: ["app:read"],
  input: z.object({}),
  effect: "reads",
  run: async (_input, { session, signal }) => {
    const apps = await session.flotilla.listApps({ signal });
    return json(
      apps.map(({ name, image, status, replicas, url, message }) => ({ name, image, status, replicas, url, message })),
    );
  },
});

const getApp = tool({
  name: "get_app",
  title: "Show an app",
  description: "Shows an app with its instances, why it is as it is, and what it waits for.",
  needs: ["app:read"],
  input: z.object({ app: appInput }),
  effect: "reads",
  run: async ({ app }, { session, signal }) =>
    json({
      ...(await session.flotilla.getApp(app, { signal })),
      explanation: await session.flotilla.explainApp(app, { signal }),
    }),
});

const deployApp = tool({
  name: "deploy_app",
  title: "Deploy an app",
  description:
    "Deploys an image as an app, or another image for an app that is there: its instances are replaced one by one. " +
    "The answer is the state at its beginning; get_app says how it continues.",
  needs: ["app:write", "app:read"],
  input: z.object({
    app: appInput,
    image: z.string().min(1).max(500),
    replicas: replicasInput.default(1),
    port: z.number().int().min(1).max(65_535).optional().describe("where instances listen"),
    cpus: z.number().int().min(1).max(64).default(1),
    memoryMb: z.number().int().min(64).max(1_048_576).default(512),
    env: z.record(z.string(), z.string()).optional(),
    publicIngress: z.boolean().default(false).describe("whether its address needs no key"),
  }),
  effect: "makes",
  run: async ({ app, env, ...rest }, { session, signal }) => {
    const variables = env === undefined ? undefined : Object.entries(env).map(([key, value]) => ({ key, value }));
    const body = { ...rest, name: app, env: variables };
    const { flotilla, common } = session;
    const known = (await flotilla.listApps({ signal })).find(({ name }) => name === app);
    // One instance more runs while the others are replaced.
    const count = rest.replicas + (known === undefined ? 0 : 1);
    const deploy = () => flotilla.deployApp(body, { signal, idempotencyKey: crypto.randomUUID() });
    const undo = () =>
      known === undefined ? flotilla.destroyApp(app) : flotilla.scaleApp(app, { count: known.replicas });
    return json(await common.ceilings.making(session, { count, app }, deploy, undo));
  },
});

const scaleApp = tool({
  name: "scale_app",
  title: "Scale an app",
  description: "Sets how many instances of an app serve.",
  needs: ["app:write", "app:read"],
  input: z.object({ app: appInput, replicas: replicasInput }),
  effect: "makes",
  run: async ({ app, replicas }, { session, signal }) => {
    const { flotilla, common } = session;
    const known = await flotilla.getApp(app, { signal });
    const scale = () => flotilla.scaleApp(app, { count: replicas }, { signal });
    // What takes away is always allowed.
    if (replicas <= known.replicas) return json(await scale());
    const undo = () => flotilla.scaleApp(app, { count: known.replicas });
    // One more runs while a release replaces another.
    const count = replicas + (known.rollout === null ? 0 : 1);
    return json(await common.ceilings.making(session, { count, app }, scale, undo));
  },
});

const destroyApp = tool({
  name: "destroy_app",
  title: "Destroy an app",
  description: "Destroys an app and its instances, for good.",
  needs: ["app:write", "app:read"],
  input: z.object({ app: appInput }),
  effect: "destroys",
  question: async ({ app }, { session, signal }) => {
    const { id, name } = await session.flotilla.getApp(app, { signal });
    return { text: `Destroy the app ${JSON.stringify(name)} and its instances?`, target: id };
  },
  run: async ({ app }, { session, signal }) => {
    await session.flotilla.destroyApp(app, { signal });
    return text(`destroyed ${JSON.stringify(app)}`);
  },
});

const machineLogs = tool({
  name: "machine_logs",
  title: "Read a machine's log",
  description: "Shows the last lines that the workload of a machine has written, also while it is stopped.",
  needs: ["machine:read"],
  input: z.object({ machine: machineInput, tail: tailInput }),
  effect: "reads",
  run: async ({ machine, tail }, { session, signal }) => {
    const { id } = await findMachine(session.flotilla, machine);
    return text(await readLog(await session.flotilla.listMachineLogs(id, { query: { tail }, signal })));
  },
});

const appLogs = tool({
  name: "app_logs",
  title: "Read an app's log",
  description: "Shows the last lines that the instances of an app have written.",
  needs: ["app:read"],
  input: z.object({ app: appInput, tail: tailInput }),
  effect: "reads",
  run: async ({ app, tail }, { session, signal }) =>
    text(await readLog(await session.flotilla.listAppLogs(app, { query: { tail, follow: false }, signal }))),
});

const getUsage = tool({
  name: "get_usage",
  title: "Show usage and cost",
  description: "Shows the plan's ceilings, and what the tenant has used and what that costs this month, in micros.",
  needs: [],
  needsOneOf: ["usage:read", "machine:read"],
  input: z.object({}),
  effect: "reads",
  run: async (_input, { session, signal }) => json(await session.flotilla.getAccount({ signal })),
});

export const appTools: readonly Tool[] = [
  listApps,
  getApp,
  deployApp,
  scaleApp,
  destroyApp,
  machineLogs,
  appLogs,
  getUsage,
];
