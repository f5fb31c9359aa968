/**
 * The parts of the page's address that say what is shown.
 */
import { useParams, useSearch } from "@tanstack/react-router";

/** A part of the path, such as the id; empty: the path has none. */
export function usePathPart(name: string): string {
  const parts = useParams({ strict: false }) as Readonly<Record<string, string | undefined>>;
  return parts[name] ?? "";
}

/** A parameter of the address; empty: it has none. */
export function useParameter(name: string): string {
  const search = useSearch({ strict: false }) as Readonly<Record<string, unknown>>;
  const value = search[name];
  return typeof value === "string" ? value : "";
}
