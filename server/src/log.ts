/**
 * The structured log: one JSON object per line on standard error.
 *
 * Always: neither secrets nor bodies are logged, and of an error nothing but its texts, its code and its
 * causes. A request's lines contain its `requestId`.
 */
import type { Log } from "@flotilla/base/log";
import { type DestinationStream, pino } from "pino";
import { LogOutput } from "./log-output.ts";

/** Max causes of one line, each the cause of the one before. */
const CAUSES_MAX = 8;

/** One for all logs of the process, so that their lines are not mixed. */
const standardError = new LogOutput(2);

export type LogLevel = "debug" | "info" | "warn" | "error" | "silent";

export function createLog(level: LogLevel, destination: DestinationStream = standardError): Log {
  return pino(
    {
      level,
      base: null,
      // The node agent uses the same key, so that one query finds the lines of both.
      messageKey: "message",
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { error: (error: unknown) => describe(error, CAUSES_MAX) },
    },
    destination,
  );
}

/**
 * An error's texts and code alone: other properties may hold what a line must not have, those of PostgreSQL's
 * errors a whole row.
 */
function describe(error: unknown, causesMax: number): unknown {
  if (!(error instanceof Error)) return error;
  const { name: type, message, code, stack, cause, errors } = error as Error & { code?: unknown; errors?: unknown };
  const inner = (each: unknown): unknown => (causesMax > 0 ? describe(each, causesMax - 1) : undefined);
  return {
    type,
    message,
    code,
    stack,
    cause: inner(cause),
    errors: Array.isArray(errors) ? errors.map(inner) : undefined,
  };
}
