/**
 * Values as people read them.
 */
import { now } from "./clock.ts";

const MICROS = 1_000_000;
const SIZES = ["B", "KiB", "MiB", "GiB", "TiB"] as const;

/** `1.5 GiB`. */
export function renderBytes(bytes: number): string {
  let value = bytes;
  let at = 0;
  while (value >= 1024 && at < SIZES.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${at === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${SIZES[at]}`;
}

export const renderMb = (mb: number): string => renderBytes(mb * 1024 * 1024);

/** Money in micros of the operator's currency: `1.2345`, with as many digits as small amounts need. */
export function renderMoney(micros: number): string {
  const value = micros / MICROS;
  const digits = value === 0 || Math.abs(value) >= 100 ? 2 : Math.abs(value) >= 1 ? 3 : 6;
  return value.toLocaleString(undefined, { minimumFractionDigits: 2, maximumFractionDigits: digits });
}

const UNITS: readonly (readonly [name: Intl.RelativeTimeFormatUnit, seconds: number])[] = [
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
];
const RELATIVE = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });

const AGE_SECONDS_MAX = 30 * 86_400;

/** `3 min. ago`; the date of what is more than 30 days away. */
export function renderAge(instant: string, from = now()): string {
  const seconds = (Date.parse(instant) - from) / 1000;
  if (Math.abs(seconds) > AGE_SECONDS_MAX)
    return new Date(instant).toLocaleDateString(undefined, { dateStyle: "medium" });
  const [unit, size] = UNITS.find(([, each]) => Math.abs(seconds) >= each) ?? ["second", 1];
  return RELATIVE.format(Math.trunc(seconds / size), unit);
}

/** `1 h 5 min`. */
export function renderSeconds(total: number): string {
  if (total < 60) return `${Math.round(total)} s`;
  if (total < 3600) return `${Math.round(total / 60)} min`;
  if (total < 86_400) return `${Math.floor(total / 3600)} h ${Math.round((total % 3600) / 60)} min`;
  return `${Math.floor(total / 86_400)} d ${Math.round((total % 86_400) / 3600)} h`;
}

export const renderDate = (at: string): string =>
  new Date(at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });

/** `3 machines`. */
export const renderCount = (count: number, noun: string): string =>
  `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

// oxlint-disable-next-line no-control-regex -- the pattern is for control characters
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]/g;

/**
 * Text that others chose, with what would be unseen or change the order of its letters made visible:
 * `safe\u202egpj.exe` would look like a picture.
 */
export const plain = (text: string): string =>
  text.replaceAll(UNSEEN, (each) => String.raw`\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);

/** Quoted for a shell, where necessary. */
export const shellWord = (word: string): string =>
  /^[\w./:@%+=,-]+$/.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`;
