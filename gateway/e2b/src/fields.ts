/**
 * Objects of JSON whose fields are not known yet. Pure.
 */
import { Refused } from "./refused.ts";

export type Fields = Readonly<Record<string, unknown>>;

/** Nothing is an empty object. Throws a Refused, which calls it `name`. */
export function fieldsOf(value: unknown, name: string): Fields {
  if (value === undefined || value === null) return {};
  if (typeof value !== "object" || Array.isArray(value)) throw new Refused(400, `${name} is not an object`);
  return value as Fields;
}
