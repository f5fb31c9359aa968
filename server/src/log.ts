/**
 * The structured log: one JSON object a line on standard error.
 *
 * Always: no secrets and no bodies are logged; a request's lines carry its `requestId`.
 * Lines are written behind the caller's back (pino flushes them at exit), so that logging never blocks a request.
 */
import type { Log } from "@flotilla/base/log";
import { pino } from "pino";

export type LogLevel = "debug" | "info" | "warn" | "error" | "silent";

export function createLog(level: LogLevel): Log {
  const destination = pino.destination({ fd: 2, sync: false });
  // A terminal that was closed: the server goes on without a log.
  destination.on("error", () => undefined);
  return pino(
    {
      level,
      base: null,
      // The node agent's word, so that one query finds the lines of both.
      messageKey: "message",
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { error: pino.stdSerializers.err },
    },
    destination,
  );
}
