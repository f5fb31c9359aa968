/**
 * The terms in which messages of the link are declared: TypeBox schemas with a few additional keywords, from
 * which scripts/generate-link.ts prints the readers in generated.ts.
 *
 * There are two ways to read a value. Strict terms refuse what does not fit: the node uses them, because it
 * runs as root. Lenient terms (`count`, `measure`, `clipped`) clamp a number and cut a text: the server uses
 * them for reports, where one odd value must not cost the state of a whole node.
 *
 * Always: a reader drops unknown fields. A field that is absent has its `default`; a `nullable` field has
 * null; an optional field stays absent; any other field is required. So a field that is added later must have
 * one of the three.
 */
import { type Static, type TSchema, Type } from "typebox";

export { Type };

/** A value as its reader returns it. */
export type Message<T extends TSchema> = Immutable<Static<T>>;

type Immutable<T> = T extends readonly (infer Item)[]
  ? readonly Immutable<Item>[]
  : T extends object
    ? { readonly [Name in keyof T]: Immutable<T[Name]> }
    : T;

/** Milliseconds since 1970 up to the latest instant that a Date can hold. */
const EPOCH_MS_MAX = 8.64e15;
/** Counters and sizes fit into PostgreSQL's integer. */
const COUNT_MAX = 2_000_000_000;
const CLIPPED_CHARACTERS_MAX = 4_000;
const FACTS_MAX = 32;

/** A whole number within bounds; anything else is refused. */
export const whole = (minimum: number, maximum: number, options: { default?: number } = {}) =>
  Type.Integer({ minimum, maximum, ...options });

/** A number from 0, rounded down; a larger one than `maximum` becomes it. */
export const count = (maximum: number = COUNT_MAX, options: { default?: number } = {}) =>
  Type.Integer({ minimum: 0, clampTo: maximum, ...options });

/** A number from 0, with its fraction; a larger one than `maximum` becomes it. */
export const measure = (maximum: number = COUNT_MAX) => Type.Number({ minimum: 0, clampTo: maximum });

/** Epoch milliseconds. */
export const instant = () => measure(EPOCH_MS_MAX);

/** A text without NUL; a longer one is refused. */
export const text = (maxLength: number) => Type.String({ maxLength });

/** A text that PostgreSQL can hold: cut to `characters`, without NUL and lone surrogates. */
export const clipped = (characters: number = CLIPPED_CHARACTERS_MAX) => Type.String({ clipTo: characters });

/** A text that matches; anything else is refused. */
export const matching = (pattern: RegExp) => Type.String({ pattern: pattern.source });

/** One of a closed list of choices. */
export const oneOf = <const T extends readonly string[]>(choices: T, options: { default?: T[number] } = {}) =>
  Type.Unsafe<T[number]>({ type: "string", enum: [...choices], ...options });

/** One of the choices; `otherwise` when it is absent or unknown to this version. */
export const oneOfOr = <const T extends readonly string[], const O extends string | null>(choices: T, otherwise: O) =>
  Type.Unsafe<T[number] | O>({ type: "string", enum: [...choices], otherwise });

/** true, or else false. */
export const flag = () => Type.Boolean({ default: false });

/** A value or null; null when it is absent. */
export const nullable = <T extends TSchema>(schema: T) => Type.Union([schema, Type.Null()], { default: null });

/** A list of at most `maxItems`. `bytesMax` limits a list of texts, a NUL after each; more is refused. */
export const list = <T extends TSchema>(item: T, maxItems: number, options: { bytesMax?: number } = {}) =>
  Type.Array(item, { maxItems, ...options });

/** A list of which only the first `items` are read; an absent one is empty. */
export const clippedList = <T extends TSchema>(item: T, items: number) =>
  Type.Array(item, { clipTo: items, default: [] });

/** Variables of an environment: together at most `bytesMax`, each with `=` and a NUL. */
export const environment = (bytesMax: number) =>
  Type.Unsafe<Record<string, string>>({ type: "object", environmentBytesMax: bytesMax, default: {} });

/** Texts, numbers and flags by name, at most 32. Texts are cut as by `clipped`; other values are left out. */
export const facts = () =>
  Type.Unsafe<Record<string, string | number | boolean>>({ type: "object", factsMax: FACTS_MAX, default: {} });

export const machineId = () => matching(/^mach-[0-9a-f]{32}$/);
export const pointId = () => matching(/^point-[0-9a-f]{32}$/);
