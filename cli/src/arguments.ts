/**
 * Parses command line values: sizes, durations, pairs. Pure. Commander calls these functions while it parses;
 * a value that cannot be read ends the command with exit code 2 and the expected form.
 */
import { InvalidArgumentError } from "commander";

const SPAN_SECONDS: Readonly<Record<string, number>> = { "": 1, s: 1, m: 60, min: 60, h: 3600, d: 86_400 };
const MEMORY_MB: Readonly<Record<string, number>> = { "": 1, m: 1, mb: 1, g: 1024, gb: 1024 };
const DISK_GB: Readonly<Record<string, number>> = { "": 1, g: 1, gb: 1, t: 1024, tb: 1024 };

/** A whole number above 0. */
export function count(text: string): number {
  if (!/^[1-9]\d{0,8}$/.test(text)) throw new InvalidArgumentError("Expected a whole number above 0.");
  return Number(text);
}

/** A whole number; 0 is allowed. */
export function countOrZero(text: string): number {
  if (!/^(0|[1-9]\d{0,8})$/.test(text)) throw new InvalidArgumentError("Expected a whole number of 0 or more.");
  return Number(text);
}

/** Seconds from `90`, `90s`, `10m`, `2h`, `1d`. */
export const seconds = (text: string): number => withUnit(text, SPAN_SECONDS, "a time such as 90s, 10m, 2h or 1d");

const DEADLINE_SECONDS_MAX = 24 * 3600;

/** A time that a node agent takes as a deadline. */
export function deadlineSeconds(text: string): number {
  const time = seconds(text);
  if (time < 1 || time > DEADLINE_SECONDS_MAX) throw new InvalidArgumentError("Expected a time from 1s to 1d.");
  return time;
}

/** Megabytes from `512`, `512m`, `2g`. */
export const memoryMb = (text: string): number => withUnit(text, MEMORY_MB, "a size such as 512m or 2g");

/** Gigabytes from `20`, `20g`, `1t`. */
export const diskGb = (text: string): number => withUnit(text, DISK_GB, "a size such as 20g or 1t");

function withUnit(text: string, units: Readonly<Record<string, number>>, expected: string): number {
  const match = /^(\d{1,12})\s*([a-z]*)$/i.exec(text);
  const unit = units[match?.[2]?.toLowerCase() ?? "-"];
  if (match?.[1] === undefined || unit === undefined) throw new InvalidArgumentError(`Expected ${expected}.`);
  return Number(match[1]) * unit;
}

/** Integer micros from an amount with at most six decimals, such as `0.02`. */
export function micros(text: string): number {
  const match = /^(\d{1,9})(?:\.(\d{1,6}))?$/.exec(text);
  if (match === null)
    throw new InvalidArgumentError("Expected an amount such as 12 or 0.02, with at most six decimals.");
  return Number(match[1]) * 1_000_000 + Number((match[2] ?? "").padEnd(6, "0"));
}

/** A value read by `parse`, or the word `default` as it is: Commander replaces null by an empty text. */
export function orDefault<T>(parse: (text: string) => T): (text: string) => T | "default" {
  return (text) => (text === "default" ? text : parse(text));
}

/** As orDefault, with the word `none`. */
export function orNone<T>(parse: (text: string) => T): (text: string) => T | "none" {
  return (text) => (text === "none" ? text : parse(text));
}

/** A date, which begins at midnight in UTC, or an instant with its time zone; as RFC 3339. */
export function instant(text: string): string {
  const isDate = /^\d{4}-\d{2}-\d{2}$/.test(text);
  const isInstant = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})$/.test(text);
  if ((!isDate && !isInstant) || Number.isNaN(Date.parse(text)))
    throw new InvalidArgumentError("Expected a date such as 2026-07-01, or a time such as 2026-07-01T12:00:00Z.");
  return new Date(text).toISOString();
}

/** A time before now in seconds, such as `10m`, or what `instant` reads. */
export const since = (text: string): number | string =>
  /^\d{1,12}\s*[a-z]*$/i.test(text) ? seconds(text) : instant(text);

/** Collects `name=value` pairs; a value may contain `=` and may be empty. */
export function pair(text: string, before: Readonly<Record<string, string>> = {}): Readonly<Record<string, string>> {
  const at = text.indexOf("=");
  if (at < 1) throw new InvalidArgumentError("Expected NAME=VALUE.");
  return { ...before, [text.slice(0, at)]: text.slice(at + 1) };
}

/** As `pair`, of lines for a machine's shell by the moments of its life. */
export function hook(text: string, before: Readonly<Record<string, string>> = {}): Readonly<Record<string, string>> {
  if (!/^(fork|resume|suspend|stop)=./s.test(text))
    throw new InvalidArgumentError("Expected MOMENT=LINE, with the moment fork, resume, suspend or stop.");
  return pair(text, before);
}

/** Collects repeated values. */
export const collect = (text: string, before: readonly string[] = []): readonly string[] => [...before, text];

export function port(text: string): number {
  const number = count(text);
  if (number > 65_535) throw new InvalidArgumentError("Expected a port from 1 to 65535.");
  return number;
}

/** Collects port numbers. */
export const ports = (text: string, before: readonly number[] = []): readonly number[] => [...before, port(text)];
