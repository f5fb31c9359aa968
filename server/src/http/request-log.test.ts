/**
 * Which answered requests are logged, and at which level.
 */
import assert from "node:assert/strict";
import type { IncomingMessage } from "node:http";
import { test } from "node:test";
import type { Log } from "@flotilla/base/log";
import { logAnswered } from "./request-log.ts";

function levelOf(
  name: string,
  status: number,
  url = "/x",
): { readonly level: string; readonly path: unknown; readonly appId: unknown } {
  const lines: { level: string; path: unknown; appId: unknown }[] = [];
  const at = (level: string) => (fields: object) => {
    const { path, appId } = fields as { path: unknown; appId: unknown };
    lines.push({ level, path, appId });
  };
  const log: Log = { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error"), child: () => log };
  const message = { method: "GET" } as IncomingMessage;
  const who = { key: undefined, node: undefined, details: { appId: "app-1" } };
  logAnswered(log, { requestId: "req-1", name, message, url, status, elapsedMs: 1, ...who });
  const [line] = lines;
  assert.ok(line !== undefined && lines.length === 1);
  return line;
}

test("heartbeats and probes that succeed are logged for debugging only", () => {
  assert.equal(levelOf("heartbeatNode", 200).level, "debug");
  assert.equal(levelOf("getReadiness", 200).level, "debug");
  assert.equal(levelOf("heartbeatNode", 409).level, "info");
  assert.equal(levelOf("getReadiness", 503).level, "warn");
  assert.equal(levelOf("listMachines", 200).level, "info");
});

test("a query, which may hold a token, is not logged", () => {
  assert.equal(levelOf("execTerminal", 101, "/v1/x?access_token=smk_secret").path, "/v1/x");
});

test("further fields of a request are logged with it", () => {
  assert.equal(levelOf("ingress", 200).appId, "app-1");
});
