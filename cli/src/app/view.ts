/**
 * How an app is displayed on a terminal: a row of the list, and an app with its instances. Pure; `now` is
 * passed in.
 */
import { renderSpan } from "@flotilla/base/span";
import type { AppInfo, InstanceInfo } from "@flotilla/sdk";
import { renderTable } from "../table.ts";

export const APP_HEADS = ["NAME", "STATUS", "SERVING", "RELEASE", "IMAGE", "ADDRESS", "AGE"] as const;

export const appRow = (app: AppInfo, now: number): readonly string[] => [
  app.name,
  app.status,
  servingText(app),
  app.release === null ? "-" : String(app.release),
  app.image,
  app.url,
  age(app.createdAt, now),
];

const INSTANCE_HEADS = ["RELEASE", "INSTANCE", "NODE", "HEALTH", "TRAFFIC", ""] as const;

/** How much of an instance's id is shown beside a reason that has to fit on the line. */
const SHORT_ID_CHARS = "inst-".length + 8;
export const shortId = (id: string): string => id.slice(0, SHORT_ID_CHARS);

const wholeId = (id: string): string => id;

/** Newest release first, and instances of a release by node: rows keep their places while they change. */
const instanceRows = ({ instances }: AppInfo, idOf: (id: string) => string): readonly (readonly string[])[] =>
  instances
    .toSorted(
      (one, other) => other.generation - one.generation || order(one.nodeId, other.nodeId) || order(one.id, other.id),
    )
    .map((instance) => [
      String(instance.generation),
      idOf(instance.id),
      instance.nodeId === "" ? "-" : instance.nodeId,
      instance.status,
      trafficText(instance),
      instance.reason ?? "",
    ]);

const order = (one: string, other: string): number => (one < other ? -1 : one > other ? 1 : 0);

function trafficText({ isServing, status, openRequests }: InstanceInfo): string {
  if (isServing) return "yes";
  if (status === "draining" && openRequests > 0) return `${openRequests} open`;
  return "no";
}

const servingText = ({ instances, replicas }: AppInfo): string =>
  `${instances.filter(({ isServing }) => isServing).length} of ${replicas}`;

/** An app at a glance: what it is, what happens, what that waits for, and its instances. */
export function appLines(app: AppInfo, now: number, idOf = wholeId): readonly string[] {
  const rows = instanceRows(app, idOf);
  return [
    headline(app, now),
    ...waitingLines(app, now),
    ...(rows.length === 0 ? [] : renderTable(INSTANCE_HEADS, rows)),
  ];
}

/** One line while it changes: how many serve, and what the next step waits for. */
export function progressLine(app: AppInfo): string {
  const next = app.rollout?.waitingFor ?? app.rollout?.message ?? app.message;
  return `${app.name}: ${servingText(app)} serving${next === null ? "" : `; ${next}`}`;
}

/** One line: status, how many serve, and the rollout. */
function headline(app: AppInfo, now: number): string {
  const { rollout } = app;
  const happens = rollout === null ? app.message : `${rollout.message} (${rollout.strategy})`;
  const since = rollout === null || rollout.phase === "failed" ? "" : `, for ${age(rollout.startedAt, now)}`;
  return `${app.name}: ${app.status}, ${servingText(app)} serving${happens === null ? "" : `; ${happens}`}${since}`;
}

function waitingLines({ rollout }: AppInfo, now: number): readonly string[] {
  if (rollout === null || rollout.waitingFor === null) return [];
  const until =
    rollout.deadline === null ? "" : ` (rolled back in ${renderSpan(Math.max(0, Date.parse(rollout.deadline) - now))})`;
  return [`waits: ${rollout.waitingFor}${until}`];
}

export function appFacts(app: AppInfo, now: number): readonly (readonly [string, string | null])[] {
  return [
    ["name", app.name],
    ["id", app.id],
    ["address", app.url],
    ["domain", app.domain],
    ["image", app.image],
    ["port", String(app.port)],
    ["release", app.release === null ? null : String(app.release)],
    ["created", `${age(app.createdAt, now)} ago (${app.createdAt})`],
    ["changed", `${age(app.updatedAt, now)} ago`],
  ];
}

const age = (instant: string, now: number): string => renderSpan(now - Date.parse(instant));
