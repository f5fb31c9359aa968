/**
 * Sessions of the older era, with a clock that the test moves: which of them end, and what a caller may hold
 * in them.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type Clock, systemClock } from "@flotilla/base/clock";
import { McpServer } from "@modelcontextprotocol/server";
import type { Access } from "./access.ts";
import { Sessions } from "./sessions.ts";

const MINUTE = 60_000;
const accessOf = (subject: string): Access => ({ caller: { subject, scopes: [] as string[] } }) as unknown as Access;

/** Sessions whose one tool never answers. */
class Play {
  #now = 0;
  #timers: { readonly at: number; readonly callback: () => void }[] = [];
  readonly #gone: (() => void)[] = [];
  readonly sessions: Sessions;
  /** Bodies whose memory is held. */
  bodies = 0;
  /** Calls of the tool that were cancelled. */
  cancelled = 0;

  constructor() {
    const timer: Clock["timer"] = (ms, callback) => {
      const made = { at: this.#now + ms, callback };
      this.#timers.push(made);
      return { cancel: () => (this.#timers = this.#timers.filter((each) => each !== made)) };
    };
    this.sessions = new Sessions({ ...systemClock, timer }, () => this.#server(), 1_000_000);
  }

  #server(): McpServer {
    const server = new McpServer({ name: "test", version: "0" });
    server.registerTool("wait", {}, ({ mcpReq: { signal } }) => {
      signal.addEventListener("abort", () => (this.cancelled += 1));
      return new Promise(() => {});
    });
    return server;
  }

  async pass(ms: number): Promise<void> {
    this.#now += ms;
    const due = this.#timers.filter(({ at }) => at <= this.#now);
    this.#timers = this.#timers.filter(({ at }) => at > this.#now);
    for (const { callback } of due) callback();
    await this.#settle();
  }

  /** All callers disconnect. */
  async leave(): Promise<void> {
    for (const gone of this.#gone.splice(0)) gone();
    await this.#settle();
  }

  async #settle(): Promise<void> {
    for (let turns = 0; turns < 20; turns++) await Promise.resolve();
  }

  send(subject: string, parsedBody: unknown, session?: string): Promise<Response> {
    const headers = {
      accept: "application/json, text/event-stream",
      "content-type": "application/json",
      ...(session === undefined ? {} : { "mcp-session-id": session, "mcp-protocol-version": "2025-11-25" }),
    };
    const request = new Request("http://localhost/mcp", { method: "POST", headers, body: JSON.stringify(parsedBody) });
    const ended = new Promise<void>((resolve) => this.#gone.push(resolve));
    const holdBody = () => {
      this.bodies += 1;
      return () => {
        this.bodies -= 1;
      };
    };
    return this.sessions.answer({ request, access: accessOf(subject), parsedBody, ended, holdBody });
  }

  async begin(subject: string): Promise<string> {
    const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "t", version: "1" } };
    const answer = await this.send(subject, { jsonrpc: "2.0", id: 0, method: "initialize", params });
    assert.equal(answer.status, 200, await answer.clone().text());
    await answer.text();
    await this.leave();
    return answer.headers.get("mcp-session-id") ?? "";
  }

  /** The status of a call of the tool. */
  async call(subject: string, session: string, id: number | string): Promise<number> {
    const params = { name: "wait", arguments: {} };
    return (await this.send(subject, { jsonrpc: "2.0", id, method: "tools/call", params }, session)).status;
  }

  async isOpen(subject: string, session: string): Promise<boolean> {
    const answer = await this.send(subject, { jsonrpc: "2.0", method: "notifications/initialized" }, session);
    await this.leave();
    return answer.status !== 404;
  }
}

test("a session ends half an hour after its last answer, and with it what runs; not while an answer is sent", async () => {
  const play = new Play();
  const session = await play.begin("a");
  await play.pass(29 * MINUTE);
  assert.equal(await play.isOpen("a", session), true);
  assert.equal(await play.call("a", session, 1), 200);
  await play.pass(120 * MINUTE);
  assert.deepEqual([play.cancelled, play.bodies], [0, 1]);
  await play.leave();
  await play.pass(29 * MINUTE);
  assert.deepEqual([play.cancelled, play.bodies], [0, 1]);
  await play.pass(MINUTE);
  assert.deepEqual([play.cancelled, play.bodies], [1, 0]);
  assert.equal(await play.isOpen("a", session), false);
});

test("a key that begins many sessions loses those that it used least recently and in which nothing runs", async () => {
  const play = new Play();
  const other = await play.begin("b");
  const sessions: string[] = [];
  for (let count = 0; count < 16; count++) sessions.push(await play.begin("a"));
  const [running = "", used = "", unused = ""] = sessions;
  await play.call("a", running, 1);
  assert.equal(await play.isOpen("a", used), true);
  await play.begin("a");
  const open = (id: string): Promise<boolean> => play.isOpen("a", id);
  assert.deepEqual([await open(running), await open(used), await open(unused)], [true, true, false]);
  assert.equal(await play.isOpen("b", other), true);
  for (const [index, id] of sessions.entries()) if (await open(id)) await play.call("a", id, `${index}`);
  await play.call("a", await play.begin("a"), 1);
  // Now something runs in each.
  const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "t", version: "1" } };
  assert.equal((await play.send("a", { jsonrpc: "2.0", id: 0, method: "initialize", params })).status, 503);
});

test("calls whose callers have disconnected are bounded, and their bodies are given back with their answers", async () => {
  const play = new Play();
  const session = await play.begin("a");
  for (let id = 0; id < 32; id++) assert.equal(await play.call("a", session, id), 200);
  await play.leave();
  assert.deepEqual([await play.call("a", session, 32), play.bodies], [503, 32]);
  const cancel = { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 7 } };
  assert.equal((await play.send("a", cancel, session)).status, 202);
  assert.deepEqual([play.bodies, play.cancelled], [31, 1]);
  assert.equal(await play.call("a", session, 8), 400);
  assert.equal(await play.call("a", session, "7"), 200);
  await play.sessions.endOf("b");
  assert.equal(play.bodies, 32);
  await play.sessions.endOf("a");
  assert.deepEqual([play.bodies, play.cancelled], [0, 33]);
});

test("a session is another key's for no other key", async () => {
  const play = new Play();
  const session = await play.begin("a");
  assert.equal(await play.isOpen("b", session), false);
  assert.equal(await play.isOpen("a", session), true);
});
