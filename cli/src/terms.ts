/**
 * The server's refusals in the terms of the command line: the server names its calls and the fields of its
 * bodies, a user of the command line knows commands and options. Pure.
 *
 * Always: what is replaced is what the refusal's details name; its text is not interpreted. A field is
 * renamed only where the command has an option or an operand for it.
 */
import type { RefusalDetails } from "@flotilla/sdk";

/** The command for each call that the server names in details. `ID` is any one part of the path. */
const COMMANDS: Readonly<Record<string, string>> = {
  "GET /v1/apikeys": "key ls",
  "GET /v1/apps": "app ls",
  "GET /v1/apps/ID/explain": "app explain ID",
  "GET /v1/apps/ID/releases": "app releases ID",
  "GET /v1/billing/invoices": "invoice ls",
  "GET /v1/checkpoints": "checkpoint ls",
  "GET /v1/events": "events --json",
  "GET /v1/images": "image ls",
  "GET /v1/nodes": "node ls",
  "GET /v1/nodes/authorities": "authority ls",
  "GET /v1/packages": "package ls",
  "GET /v1/plans": "plan ls",
  "GET /v1/pools": "pool ls",
  "GET /v1/tenants": "tenant ls",
  "GET /v1/tokens": "token ls",
  "GET /v1/webhooks": "webhook ls",
  "POST /v1/images/pull": "image pull REFERENCE",
  "POST /v1/plans": "plan create --default",
  "POST /v1/plans/ID/rates": "plan rate ID",
};

/**
 * Fields whose option or operand has another name. For all others it follows from the field's:
 * `autoStopSeconds`, `--auto-stop`.
 */
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
  rateEgressGbMicros: ["egress-gb"],
  rateRegistryGbHourMicros: ["registry-gb-hour"],
  rateMemoryGbHourMicros: ["memory-gb-hour"],
  reference: ["image", "reference"],
  secretEnv: ["secret"],
  targetSize: ["size"],
  url: ["address"],
};

/** Values of fields that are flags. */
const FLAGS: Readonly<Record<string, readonly [value: string, flag: string]>> = {
  memory: ["memory: false", "--disk-only"],
  secrets: ['secrets: "inherit"', "--with-secrets"],
};

const UNIT = /(Mb|Gb|Secs|Seconds|Micros|Id)$/;
const BOUNDS = { ">=": "at least", "<=": "at most", ">": "above", "<": "below" } as const;
const SPANS: readonly (readonly [seconds: number, unit: string])[] = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "m"],
];

/** `names`: the options (`--memory`) and operands (`<image>`) of the command that failed. */
export function inCommandTerms(text: string, details: RefusalDetails, names: readonly string[]): string {
  const { field, must, call } = details;
  if (field !== undefined && must !== undefined) return `${nameOf(field, names) ?? field} ${mustText(field, details)}`;
  const command = call === undefined ? undefined : commandFor(call);
  const sentence = call === undefined || command === undefined ? text : text.replace(call, () => command);
  if (field === undefined) return sentence;
  const [value, flag] = FLAGS[field] ?? [];
  if (value !== undefined && flag !== undefined && names.includes(flag)) return sentence.replace(value, flag);
  const name = nameOf(field, names);
  return name === undefined ? sentence : replaceWord(sentence, field, name);
}

function commandFor(call: string): string | undefined {
  const parts = call.split("/");
  const [, , , id = ""] = parts;
  const anyId = parts.map((part, index) => (index === 3 ? "ID" : part)).join("/");
  const command = COMMANDS[call] ?? COMMANDS[anyId]?.replace("ID", () => id);
  return command === undefined ? undefined : `\`flotilla ${command}\``;
}

/** `must be at most 128m`, where the option takes a unit. */
function mustText(field: string, { must, limit }: RefusalDetails): string {
  const unit = UNIT.exec(field)?.[1];
  if (limit?.of !== "value" || unit === undefined) return `must ${must}`;
  return `must be ${BOUNDS[limit.bound]} ${amountText(limit.value, unit)}`;
}

/** Where it is a word by itself: `to`, but not in `tomorrow`. */
const replaceWord = (text: string, word: string, other: string): string =>
  text.replace(new RegExp(`(?<![\\w.])${word.replaceAll(".", "\\.")}(?!\\w)`), () => other);

/** As the options take it: `128m`, `24h`. */
function amountText(amount: number, unit: string): string {
  if (unit === "Mb") return `${amount}m`;
  if (unit === "Gb") return `${amount}g`;
  if (unit === "Micros") return String(amount / 1_000_000);
  if (unit !== "Secs" && unit !== "Seconds") return String(amount);
  const [seconds, letter] = SPANS.find(([span]) => amount > 0 && amount % span === 0) ?? [1, "s"];
  return `${amount / seconds}${letter}`;
}

/**
 * The option or operand for a field, which may be a path: `labels.team` is `--label team`. undefined: there
 * is none.
 */
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
