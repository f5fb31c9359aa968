/**
 * Clients that keep something open: WebSockets, each message of which is returned, and streams of numbered
 * events. One that has ended is opened again.
 *
 * Always: an end is what the protocol has for it (close code 1001, the end of the stream), or, of a WebSocket
 * whose ingress stops, the end of its connection; a reset, a wrong message and a gap are failures.
 */
import { type IncomingMessage, request as httpRequest } from "node:http";
import { WebSocket } from "ws";
import { monotonic, pause } from "../support/until.ts";
import { type Balancer, type Failed, SLOW_MS, type Way } from "./balancer.ts";

const MESSAGE_MS = 100;
const NORMAL = 1000;
const GOING_AWAY = 1001;
/** The connection ended without a close frame. */
const ABNORMAL = 1006;

/** Opens what `open` opens, at the next ingress if one accepts no connection, until the clients are over. */
async function keepOpen(
  { balancer, isOver, name }: Lasting,
  open: (way: Way, opened: () => void) => Promise<Failed | null>,
): Promise<void> {
  for (let tried = 1; !isOver(); tried += 1) {
    const way = balancer.next();
    const began = monotonic();
    let isOpen = false;
    const end = await open(way, () => {
      isOpen = true;
      balancer.tally.answered(way.url, monotonic() - began);
    });
    if (isOpen) tried = 0;
    if (end === null || (isOver() && isOpen)) continue;
    const what = `${name} by ${way.url}: ${end.why}`;
    if (isOpen) balancer.tally.broke(end.failure, what);
    else if (end.failure === "refused" && tried < balancer.size) balancer.refused(way);
    else balancer.tally.failed(end.failure, what);
  }
}

export interface Lasting {
  readonly balancer: Balancer;
  readonly isOver: () => boolean;
  /** Names the client, also in its messages. */
  readonly name: string;
}

export async function keepTalking(lasting: Lasting): Promise<void> {
  const { balancer, isOver, name } = lasting;
  let number = 0;
  let isRepeated = false;
  await keepOpen(lasting, async (way, opened) => {
    const headers = { host: balancer.host };
    const socket = new WebSocket(`${way.url.replace("http", "ws")}/talk`, { headers, handshakeTimeout: SLOW_MS });
    let failed: Failed | null = null;
    const fail = (failure: Failed["failure"], why: string): void => {
      failed ??= { failure, why };
      socket.terminate();
    };
    const closed = new Promise<number>((resolve) => socket.once("close", resolve));
    let returned = Promise.withResolvers<void>();
    socket.once("unexpected-response", (_, { statusCode }) => fail("status", String(statusCode)));
    socket.on("error", (error: NodeJS.ErrnoException) =>
      fail(error.code === "ECONNREFUSED" ? "refused" : "reset", error.message),
    );
    socket.on("message", (data: Buffer) => {
      if (data.toString() === `${name} ${number}`) return returned.resolve();
      fail("wrong", `message ${number} is returned as ${data.toString()}`);
    });
    const talk = async (): Promise<void> => {
      opened();
      while (socket.readyState === WebSocket.OPEN && !isOver()) {
        if (isRepeated) balancer.tally.count("repeated");
        else number += 1;
        isRepeated = true;
        socket.send(`${name} ${number}`);
        const isReturned = await Promise.race([returned.promise.then(() => true), closed.then(() => false), late()]);
        if (isReturned === null) return fail("slow", `message ${number} is not returned`);
        if (!isReturned) return;
        isRepeated = false;
        returned = Promise.withResolvers<void>();
        balancer.tally.count("messages");
        await pause(MESSAGE_MS);
      }
      socket.close(NORMAL);
    };
    socket.once("open", () => void talk());
    const code = await closed;
    if (failed !== null) return failed;
    if (code === GOING_AWAY) balancer.tally.count("ended");
    else if (code === ABNORMAL) balancer.tally.count("closed");
    else if (code !== NORMAL) return { failure: "torn", why: `close code ${code}` };
    return null;
  });
}

const late = async (): Promise<null> => {
  await pause(SLOW_MS);
  return null;
};

export async function keepListening(lasting: Lasting): Promise<void> {
  const { balancer, isOver } = lasting;
  await keepOpen(lasting, async (way, opened) => {
    const headers = { host: balancer.host, accept: "text/event-stream" };
    const request = httpRequest(`${way.url}/events`, { headers, agent: false, timeout: SLOW_MS });
    request.end();
    let response: IncomingMessage | null = null;
    request.once("timeout", () => request.destroy(new Error("no event comes")));
    try {
      response = await new Promise<IncomingMessage>((resolve, reject) => {
        request.once("response", resolve);
        request.on("error", reject);
      });
      if (response.statusCode !== 200) {
        response.resume();
        return { failure: "status", why: String(response.statusCode) };
      }
      opened();
      const gap = await readEvents(lasting, response);
      if (gap !== null) return { failure: "wrong", why: gap };
      if (!isOver()) balancer.tally.count("ended");
      return null;
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      const why = `${code ?? ""} ${message}`;
      if (response !== null) return { failure: "torn", why };
      return { failure: code === "ECONNREFUSED" ? "refused" : "reset", why };
    }
  });
}

/** Why this is not a stream of events, numbered from 1; null: it is. An event that was cut is dropped. */
async function readEvents({ balancer, isOver }: Lasting, response: IncomingMessage): Promise<string | null> {
  let number = 0;
  let rest = "";
  for await (const chunk of response) {
    const events = (rest + String(chunk)).split("\n\n");
    rest = events.pop() ?? "";
    for (const event of events) {
      number += 1;
      if (!/^data: \S+ \d+$/.test(event) || !event.endsWith(` ${number}`)) return `${event} is event ${number}`;
      balancer.tally.count("events");
    }
    if (isOver()) break;
  }
  return null;
}
