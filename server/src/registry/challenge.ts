/**
 * What a registry answers to a request without the right credential: how to get it. Pure.
 */
export type Challenge =
  | { readonly kind: "basic" }
  | { readonly kind: "bearer"; readonly realm: URL; readonly service: string | null };

/** null: it is in no form that is known. `url`: that of the request. */
export function challengeFrom(header: string | undefined, url: URL): Challenge | null {
  if (header === undefined || header.length > 4_096) return null;
  if (/^basic(?:\s|$)/i.test(header)) return { kind: "basic" };
  if (!/^bearer\s/i.test(header)) return null;
  const parameters = new Map<string, string>();
  for (const [, name = "", value = ""] of header.matchAll(/([a-z]+)="([^"]*)"/gi))
    parameters.set(name.toLowerCase(), value);
  const realm = parameters.get("realm") ?? "";
  if (!URL.canParse(realm, url.href)) return null;
  const where = new URL(realm, url);
  // The password is not sent in the clear.
  if (where.protocol !== "https:" && (where.protocol !== "http:" || url.protocol !== "http:")) return null;
  return { kind: "bearer", realm: where, service: parameters.get("service") ?? null };
}

/** The token of an answer, and how many seconds it lasts. null: it has none. */
export function tokenFrom(text: string): { readonly token: string; readonly seconds: number } | null {
  try {
    const { token, access_token: other, expires_in: seconds } = JSON.parse(text) as Record<string, unknown>;
    const found = typeof token === "string" && token !== "" ? token : other;
    if (typeof found !== "string" || !/^[\x21-\x7e]{1,16384}$/.test(found)) return null;
    return { token: found, seconds: typeof seconds === "number" && seconds > 0 ? Math.min(seconds, 3_600) : 60 };
  } catch {
    return null;
  }
}
