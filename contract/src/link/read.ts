/**
 * The steps of which generated.ts reads a message: one function for each term of vocabulary.ts.
 *
 * Pure, and without packages: the node agent has none. Always: a function returns a value of its type, or
 * throws InvalidMessage with the place and the expectation. It never returns an object that came from
 * outside.
 */

/** A message that does not fit. `message` says where and what was expected. */
export class InvalidMessage extends Error {
  constructor(where: string, expected: string) {
    super(`${where}: expected ${expected}`);
    this.name = "InvalidMessage";
  }
}

export type Fields = Readonly<Record<string, unknown>>;

export function record(value: unknown, where: string): Fields {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new InvalidMessage(where, "an object");
  return value as Fields;
}

export function list<T>(value: unknown, where: string, itemsMax: number, read: (item: unknown) => T): T[] {
  if (!Array.isArray(value) || value.length > itemsMax)
    throw new InvalidMessage(where, `a list of at most ${itemsMax} items`);
  return value.map((item) => read(item));
}

export function clippedList<T>(value: unknown, where: string, items: number, read: (item: unknown) => T): T[] {
  if (!Array.isArray(value)) throw new InvalidMessage(where, "a list");
  const kept: readonly unknown[] = value.length > items ? value.slice(0, items) : value;
  return kept.map((item) => read(item));
}

/** The texts, if they have at most `bytesMax` bytes with a NUL after each. */
export function bytesAtMost(texts: string[], where: string, bytesMax: number): string[] {
  const bytes = texts.reduce((sum, item) => sum + Buffer.byteLength(item) + 1, 0);
  if (bytes > bytesMax) throw new InvalidMessage(where, `at most ${bytesMax} bytes, not ${bytes}`);
  return texts;
}

export function whole(value: unknown, where: string, minimum: number, maximum: number): number {
  if (typeof value !== "number" || !Number.isSafeInteger(value) || value < minimum || value > maximum)
    throw new InvalidMessage(where, `a whole number from ${minimum} to ${maximum}`);
  return value;
}

export function count(value: unknown, where: string, maximum: number): number {
  return Math.floor(measure(value, where, maximum));
}

export function measure(value: unknown, where: string, maximum: number): number {
  if (typeof value !== "number" || !(value >= 0)) throw new InvalidMessage(where, "a number from 0");
  return value > maximum ? maximum : value;
}

export function text(value: unknown, where: string, charactersMax: number): string {
  if (typeof value !== "string" || value.length > charactersMax || value.includes("\0"))
    throw new InvalidMessage(where, `a text of at most ${charactersMax} characters, without NUL`);
  return value;
}

export function textFrom(value: unknown, where: string, start: string, charactersMax: number): string {
  const read = text(value, where, charactersMax);
  if (!read.startsWith(start)) throw new InvalidMessage(where, `a text that begins with "${start}"`);
  return read;
}

export function clipped(value: unknown, where: string, charactersMax: number): string {
  if (typeof value !== "string") throw new InvalidMessage(where, "a text");
  const cut = value.length > charactersMax ? value.slice(0, charactersMax) : value;
  return cut.isWellFormed() && !cut.includes("\0") ? cut : cut.replaceAll("\0", "").toWellFormed();
}

export function matching(value: unknown, where: string, pattern: RegExp): string {
  if (typeof value !== "string" || !pattern.test(value))
    throw new InvalidMessage(where, `a text that matches ${pattern.source}`);
  return value;
}

export function oneOf<T extends string>(value: unknown, where: string, choices: readonly T[]): T {
  const index = choices.indexOf(value as T);
  if (index < 0) throw new InvalidMessage(where, `one of ${choices.join(", ")}`);
  return choices[index] as T;
}

export function oneOfOr<T extends string, O>(value: unknown, choices: readonly T[], otherwise: O): T | O {
  return choices.includes(value as T) ? (value as T) : otherwise;
}

const FACT_CHARACTERS_MAX = 4_000;

export function facts(value: unknown, where: string, max: number): Record<string, string | number | boolean> {
  const read: [string, string | number | boolean][] = [];
  for (const [name, item] of Object.entries(record(value, where)).slice(0, max)) {
    const fact = typeof item === "string" ? clipped(item, where, FACT_CHARACTERS_MAX) : item;
    const isFact = typeof fact === "string" || typeof fact === "boolean" || Number.isFinite(fact);
    if (isFact) read.push([clipped(name, where, 64), fact as string | number | boolean]);
  }
  return Object.fromEntries(read);
}

export function environment(value: unknown, where: string, bytesMax: number): Record<string, string> {
  let bytes = 0;
  const variables: [string, string][] = [];
  for (const [name, item] of Object.entries(record(value, where))) {
    if (name === "" || name.includes("=") || name.includes("\0"))
      throw new InvalidMessage(where, `names of variables, not "${name.slice(0, 64)}"`);
    const read = text(item, `${where}.${name.slice(0, 64)}`, bytesMax);
    bytes += Buffer.byteLength(name) + Buffer.byteLength(read) + 2;
    variables.push([name, read]);
  }
  if (bytes > bytesMax) throw new InvalidMessage(where, `at most ${bytesMax} bytes, not ${bytes}`);
  return Object.fromEntries(variables);
}
