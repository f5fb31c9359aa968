/**
 * What the request for a sandbox says, checked. Pure.
 *
 * Both spellings of E2B's request are read by one function: the older has a shorter default for the time, and
 * says more. What Flotilla has no counterpart for is refused by its name, unless it says nothing.
 */
import { type Fields, fieldsOf } from "./fields.ts";
import { networkOf, type NetworkRequest } from "./network.ts";
import { notImplemented, Refused } from "./refused.ts";

export interface NewSandbox {
  readonly template: string;
  readonly timeoutSeconds: number;
  readonly metadata: Readonly<Record<string, string>>;
  readonly env: Readonly<Record<string, string>>;
  readonly pausesAtEnd: boolean;
  readonly keepsMemory: boolean;
  readonly resumesByTraffic: boolean;
  readonly isPublic: boolean;
  readonly hostMask: string | null;
  readonly network: NetworkRequest;
}

const TIMEOUT_SECONDS = { v1: 15, v2: 300 } as const;
const TIMEOUT_SECONDS_MAX = 30 * 24 * 3600;
const TEMPLATE = /^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,511}$/;
const HOST_MASK = /^[A-Za-z0-9.:_[\]${}-]{1,255}$/;
const ABSENT = ["volumeMounts", "mcp", "iam", "secrets"] as const;

/** Throws a Refused. */
export function newSandboxOf(body: Fields, version: "v1" | "v2"): NewSandbox {
  const { templateID: template } = body;
  if (typeof template !== "string" || !TEMPLATE.test(template)) throw new Refused(400, "templateID is not a template");
  for (const name of ABSENT) if (!isEmpty(body[name])) throw notImplemented(name);
  const network = fieldsOf(body["network"], "network");
  return {
    template,
    timeoutSeconds: timeoutOf(body["timeout"], TIMEOUT_SECONDS[version]),
    metadata: textsOf(body["metadata"], "metadata"),
    env: textsOf(body["envVars"], "envVars"),
    pausesAtEnd: body["autoPause"] === true,
    keepsMemory: body["autoPauseMemory"] !== false,
    resumesByTraffic: fieldsOf(body["autoResume"], "autoResume")["enabled"] === true,
    isPublic: network["allowPublicTraffic"] !== false,
    hostMask: hostMaskOf(network["maskRequestHost"]),
    network: networkOf(network, body["allow_internet_access"] !== false),
  };
}

function hostMaskOf(value: unknown): string | null {
  if (value === undefined || value === null || value === "") return null;
  if (typeof value !== "string" || !HOST_MASK.test(value))
    throw new Refused(400, "network.maskRequestHost is not a host");
  return value;
}

/** Seconds; a fraction counts as a whole one. Throws a Refused. */
export function timeoutOf(value: unknown, byDefault: number): number {
  if (value === undefined || value === null) return byDefault;
  if (typeof value !== "number" || !(value > 0) || value > TIMEOUT_SECONDS_MAX)
    throw new Refused(400, `timeout is not a number of seconds from 1 to ${TIMEOUT_SECONDS_MAX}`);
  return Math.ceil(value);
}

function textsOf(value: unknown, name: string): Record<string, string> {
  const fields = fieldsOf(value, name);
  for (const [key, text] of Object.entries(fields))
    if (typeof text !== "string") throw new Refused(400, `${name}.${key} is not a string`);
  return fields as Record<string, string>;
}

function isEmpty(value: unknown): boolean {
  if (value === undefined || value === null || value === false) return true;
  return typeof value === "object" && Object.keys(value).length === 0;
}
