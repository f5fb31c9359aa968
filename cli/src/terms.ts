/**
 * The server's sentences in the terms of the command line: the server names its calls and the fields of its bodies, a
 * user of the command line knows commands and options. Pure.
 *
 * Always: a text that names no call and no field is unchanged. A field is renamed only where the command has an option
 * or an operand for it.
 */

/** The command for each call that the server names in a sentence. `ID` is any one part of the path. */
const COMMANDS: Readonly<Record<string, string>> = {
  "GET /v1/apikeys": "key ls",
  "GET /v1/billing/invoices": "invoice ls",
  "GET /v1/events": "events --json",
  "GET /v1/images": "image ls",
  "GET /v1/nodes": "node ls",
  "GET /v1/nodes/authorities": "authority ls",
  "GET /v1/plans": "plan ls",
  "GET /v1/pools": "pool ls",
  "GET /v1/tenants": "tenant ls",
  "GET /v1/tokens": "token ls",
  "GET /v1/webhooks": "webhook ls",
  "POST /v1/images/pull": "image pull REFERENCE",
  "POST /v1/plans": "plan create --default",
  "POST /v1/plans/ID/rates": "plan rate ID",
};

/** Fields whose option or operand has another name. For all others it follows from the field's: `autoStopSeconds`, `--auto-stop`. */
const RENAMED: Readonly<Record<string, readonly string[]>> = {
  activeFrom: ["from"],
  cidrs: ["allow-cidr"],
  cursor: ["from"],
  externalBillingId: ["billing-id"],
  hosts: ["allow-host"],
  id: ["session"],
  keepPreviousHours: ["keep-hours"],
  maxConcurrentMachines: ["max-running"],
  micros: ["amount"],
  monthlyBudgetMicros: ["budget"],
  nodeId: ["node", "to"],
  rateCpuHourMicros: ["cpu-hour"],
  rateMemoryGbHourMicros: ["memory-gb-hour"],
  reference: ["image", "reference"],
  secretEnv: ["secret"],
  targetSize: ["size"],
  url: ["address"],
};

/** How the server says where a cursor comes from. On the command line only those of events are given. */
const OF_PAGES = "take it from the link header of the previous page";
const OF_EVENTS = "`flotilla events --json` shows that of each event";

const UNIT = /(Mb|Gb|Secs|Seconds|Micros|Id)$/;
const BOUNDS: Readonly<Record<string, string>> = { ">=": "at least", "<=": "at most", ">": "above", "<": "below" };
const SPANS: readonly (readonly [seconds: number, unit: string])[] = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "m"],
];

const CALL = /\b(GET|POST|PUT|PATCH|DELETE) (\/v1(?:\/[\w.-]+)+)/g;
/** A call in brackets explains a command that the sentence names already. */
const CALL_IN_BRACKETS = / \((?:GET|POST|PUT|PATCH|DELETE) \/v1\/[^)]*\)/g;
const FIELD = /\b(?:(?:resources|source|network)\.\w+|[a-z]+(?:[A-Z][a-z]+)+)\b/g;
/** A field of which the sentence speaks: `url cannot be used`. */
const SUBJECT = /^[a-z]+(?= (?:is|cannot|must) )/;
const SCHEMA_FAULT = /^Failed to deserialize (?:the JSON body into the target type|query string): (?:([^:]+): )?(.*)$/s;

/** `names`: the options (`--memory`) and operands (`<image>`) of the command that failed. */
export function inCommandTerms(text: string, names: readonly string[]): string {
  const [, path, fault] = SCHEMA_FAULT.exec(text) ?? [];
  const sentence = fault === undefined ? text : path === undefined ? fault : schemaFault(path, fault, names);
  return sentence
    .replace(CALL_IN_BRACKETS, "")
    .replace(CALL, (call, method: string, address: string) => commandFor(method, address) ?? call)
    .replace(OF_PAGES, OF_EVENTS)
    .replace(SUBJECT, (subject) => nameOf(subject, names) ?? subject)
    .replace(FIELD, (field) => nameOf(field, names) ?? field);
}

function commandFor(method: string, address: string): string | undefined {
  const parts = address.split("/");
  const [, , , id = ""] = parts;
  const anyId = parts.map((part, index) => (index === 3 ? "ID" : part)).join("/");
  const command = COMMANDS[`${method} ${address}`] ?? COMMANDS[`${method} ${anyId}`]?.replace("ID", id);
  return command === undefined ? undefined : `\`flotilla ${command}\``;
}

/** `expected a number <= 64`, of `resources.cpus`: `--cpus must be at most 64`. */
function schemaFault(path: string, fault: string, names: readonly string[]): string {
  const name = nameOf(path, names) ?? path;
  const [, sign = "", limit] = /^expected a number (>=|<=|>|<) (-?[\d.]+)/.exec(fault) ?? [];
  if (limit !== undefined) {
    return `${name} must be ${BOUNDS[sign]} ${amountText(Number(limit), UNIT.exec(path)?.[1])}`;
  }
  const [, expected] = /^expected (.*)$/s.exec(fault) ?? [];
  if (expected === undefined) return `${name}: ${fault}`;
  if (expected === "at least 1 characters") return `${name} must not be empty`;
  return `${name} must ${/^at (least|most) \d+ (characters|entries)/.test(expected) ? "have" : "be"} ${expected}`;
}

/** As the options take it: `128m`, `24h`. */
function amountText(amount: number, unit: string | undefined): string {
  if (unit === "Mb") return `${amount}m`;
  if (unit === "Gb") return `${amount}g`;
  if (unit === "Micros") return String(amount / 1_000_000);
  if (unit !== "Secs" && unit !== "Seconds") return String(amount);
  const [seconds, letter] = SPANS.find(([span]) => amount > 0 && amount % span === 0) ?? [1, "s"];
  return `${amount / seconds}${letter}`;
}

/** The option or operand for a field, which may be a path: `labels.team` is `--label team`. undefined: there is none. */
function nameOf(path: string, names: readonly string[]): string | undefined {
  const parts = path.split(".");
  for (let at = parts.length - 1; at >= 0; at--) {
    const name = candidates(parts[at] ?? "")
      .flatMap((candidate) => [`--${candidate}`, `<${candidate}>`])
      .find((each) => names.includes(each));
    const key = parts.slice(at + 1).filter((part) => !/^\d+$/.test(part));
    if (name !== undefined) return [name, ...key].join(" ");
  }
  return undefined;
}

function candidates(field: string): readonly string[] {
  const short = field.replace(UNIT, "");
  const plain = [field, short].flatMap((each) => [each, each.replace(/s$/, "")]).map(dashed);
  return [...(RENAMED[field] ?? []), ...plain];
}

const dashed = (name: string): string => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
