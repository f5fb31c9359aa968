/**
 * The structured log: one JSON object per line on standard error.
 *
 * Always: neither secrets nor bodies are logged. A request's lines contain its `requestId`. Lines are written
 * asynchronously (pino flushes them at exit), so that logging never blocks a request.
 */
import type { Log } from "@flotilla/base/log";
import { pino } from "pino";

export type LogLevel = "debug" | "info" | "warn" | "error" | "silent";

export function createLog(level: LogLevel): Log {
  const destination = pino.destination({ fd: 2, sync: false });
  // The terminal was closed: the server continues without a log.
  destination.on("error", () => undefined);
  return pino(
    {
      level,
      base: null,
      // The node agent uses the same key, so that one query finds the lines of both.
      messageKey: "message",
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { error: pino.stdSerializers.err },
    },
    destination,
  );
}
