/**
 * The console's sign-in: one-time links, and sessions of browsers.
 *
 * Always:
 * - A session is a cookie that represents one API key: it has the key's rights, and ends with it.
 * - Neither is given to a browser whose connection others could read: it is on the server's host, or uses
 *   https.
 */
import { empty, endpoint, json } from "./endpoint.ts";
import { type Static, text, timestamp, Type } from "./schema.ts";

const MINUTE_MS = 60_000;
/** How long a one-time link is valid. */
export const CONSOLE_LINK_MS = 10 * MINUTE_MS;
/** How long a session lasts, if its key is valid for so long. */
export const CONSOLE_SESSION_MS = 7 * 24 * 60 * MINUTE_MS;

export const ConsoleLink = Type.Object({
  path: Type.String({ description: "to be appended to the server's address; opened once, it signs a browser in" }),
  expiresAt: timestamp(),
});
export type ConsoleLink = Static<typeof ConsoleLink>;

export const ConsoleSession = Type.Object({ expiresAt: timestamp() });
export type ConsoleSession = Static<typeof ConsoleSession>;

const COOKIE = "The answer sets an `HttpOnly` cookie, which counts only in requests of the console's own pages.";

export const consoleEndpoints = {
  createConsoleLink: endpoint({
    method: "POST",
    path: "/v1/console/links",
    family: "console",
    summary: "Make a link that signs one browser in to the console, as the calling key; valid once, for ten minutes",
    access: "anyKey",
    answers: { 201: json(ConsoleLink) },
    isExtra: true,
  }),
  openConsoleLink: endpoint({
    method: "POST",
    path: "/v1/console/sessions/link",
    family: "console",
    summary: "Sign a browser in with the token of a one-time link",
    description: COOKIE,
    access: "public",
    body: { kind: "json", schema: Type.Object({ token: text({ minLength: 1, maxLength: 100 }) }) },
    answers: { 201: json(ConsoleSession) },
    errors: ["invalid_json", "invalid_request", "invalid_body", "unknown_key"],
    isExtra: true,
  }),
  createConsoleSession: endpoint({
    method: "POST",
    path: "/v1/console/sessions",
    family: "console",
    summary: "Sign a browser in as the calling key",
    description: COOKIE,
    access: "anyKey",
    answers: { 201: json(ConsoleSession) },
    errors: ["invalid_request"],
    isExtra: true,
  }),
  deleteConsoleSession: endpoint({
    method: "DELETE",
    path: "/v1/console/session",
    family: "console",
    summary: "Sign the calling browser out; what it has open ends",
    access: "anyKey",
    answers: { 204: empty() },
    isExtra: true,
  }),
} as const;
