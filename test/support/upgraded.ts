/**
 * Upgraded connections to a real machine, whose guest returns what it receives: every byte of both directions
 * is compared.
 *
 * What arrives is read with rests, so every buffer on the way is full and the emulated guest waits.
 */
import assert from "node:assert/strict";
import { connect, type Socket } from "node:net";
import type { Flotilla } from "./flotilla.ts";
import { pause, until } from "./until.ts";

const LONG = { deadlineMs: 120_000, everyMs: 50 };
/** A number of eight digits and a line's end. */
const LINE_BYTES = 9;
/** Size of what is sent at once. */
const CHUNK_BYTES = 32 * 1024;
/** After each piece that was read, at most 64 KiB, until the end is requested. */
const REST_MS = 100;

/** Answers every request with an upgrade and then returns what it gets; /count sends numbers instead. */
const HANDLER = `#!/bin/sh
read -r method path version
while read -r line; do [ "$line" = "$(printf '\\r')" ] && break; done
printf 'HTTP/1.1 101 Switching Protocols\\r\\nconnection: Upgrade\\r\\nupgrade: pattern\\r\\n\\r\\n'
case $path in
/count) exec seq -w 1 99999999 ;;
*) exec cat ;;
esac
`;

/** Starts the program in a machine that publishes the port. */
export async function serveUpgrades(flotilla: Flotilla, id: string, port: number): Promise<void> {
  const script = Buffer.from(HANDLER).toString("base64");
  await flotilla.exec(id, `echo ${script} | busybox base64 -d >/tmp/upgrade && chmod +x /tmp/upgrade`);
  const answer = await flotilla.client().post(`/v1/machines/${id}/exec`, {
    command: ["sh", "-c", `exec busybox nc -ll -p ${port} -e /tmp/upgrade`],
    background: true,
  });
  assert.equal(answer.status, 200, answer.text);
}

/** That many bytes of the pattern, from one of them on. */
function pattern(at: number, bytes: number): Buffer {
  const first = Math.floor(at / LINE_BYTES);
  const offset = at % LINE_BYTES;
  const count = Math.ceil((offset + bytes) / LINE_BYTES);
  const lines = Array.from({ length: count }, (_, index) => `${String(first + index + 1).padStart(8, "0")}\n`);
  return Buffer.from(lines.join("")).subarray(offset, offset + bytes);
}

/** Sends a numbered pattern as fast as it is taken, and compares what comes back. */
export class Upgraded {
  receivedBytes = 0;
  sentBytes = 0;
  /** Why it ended; empty while it is open. */
  ended = "";
  fault = "";
  readonly #socket: Socket;
  readonly #sends: boolean;
  #head = Buffer.alloc(0);
  #isOpen = false;
  #isStopped = false;

  private constructor(socket: Socket, sends: boolean) {
    this.#socket = socket;
    this.#sends = sends;
    socket.on("data", (chunk: Buffer) => {
      this.#take(chunk);
      if (this.#isStopped) return;
      socket.pause();
      void pause(REST_MS).then(() => socket.resume());
    });
    socket.on("error", (error) => (this.ended ||= error.message));
    socket.on("end", () => (this.ended ||= "end"));
    socket.on("close", () => (this.ended ||= "close"));
    socket.on("drain", () => this.#send());
  }

  /** `path`: /echo or /count. */
  static async open(
    flotilla: Flotilla,
    { id, port, path }: { id: string; port: number; path: string },
  ): Promise<Upgraded> {
    const { url, key } = flotilla.client();
    const at = new URL(url);
    const socket = connect({ host: at.hostname, port: Number(at.port), allowHalfOpen: true });
    const upgraded = new Upgraded(socket, path === "/echo");
    const head = [
      `GET /v1/machines/${id}/connect/${port}${path} HTTP/1.1`,
      `host: ${at.host}`,
      `authorization: Bearer ${key}`,
      "connection: Upgrade",
      "upgrade: pattern",
    ];
    socket.write(`${head.join("\r\n")}\r\n\r\n`);
    await until(() => upgraded.#isOpen || upgraded.ended !== "", { what: "the upgrade", ...LONG });
    assert.equal(upgraded.ended, "");
    return upgraded;
  }

  get #failed(): boolean {
    return this.fault !== "" || this.ended !== "";
  }

  /** Waits for this many bytes more than now. */
  async haveMore(bytes: number): Promise<void> {
    const wanted = this.receivedBytes + bytes;
    await until(() => this.receivedBytes >= wanted || this.#failed, {
      what: `more of an upgraded connection`,
      ...LONG,
    });
    assert.equal(this.fault + this.ended, "", this.#sends ? "echo" : "count");
  }

  /** Stops sending; what was sent comes back, and then the guest's end. Of /count the connection is cut. */
  async finish(): Promise<void> {
    this.#isStopped = true;
    if (this.#sends) {
      this.#socket.end();
      await until(() => this.#failed, { what: "the end of an upgraded connection", ...LONG });
      assert.deepEqual([this.fault, this.ended, this.receivedBytes], ["", "end", this.sentBytes]);
    }
    assert.equal(this.fault, "");
    this.#socket.destroy();
  }

  #take(chunk: Buffer): void {
    if (this.#isOpen) return this.#compare(chunk);
    this.#head = Buffer.concat([this.#head, chunk]);
    const end = this.#head.indexOf("\r\n\r\n");
    if (end < 0) return;
    if (!this.#head.toString("latin1").startsWith("HTTP/1.1 101 ")) return void (this.ended ||= this.#head.toString());
    this.#isOpen = true;
    if (this.#sends) this.#send();
    this.#compare(this.#head.subarray(end + 4));
  }

  #compare(chunk: Buffer): void {
    const expected = pattern(this.receivedBytes, chunk.byteLength);
    if (!chunk.equals(expected)) {
      const wrong = chunk.findIndex((byte, index) => byte !== expected[index]);
      const around = chunk.subarray(Math.max(0, wrong - 40), wrong + 40);
      this.fault ||= `wrong at byte ${this.receivedBytes + wrong}: ${around}`;
    }
    this.receivedBytes += chunk.byteLength;
  }

  #send(): void {
    while (!this.#isStopped && this.ended === "") {
      const chunk = pattern(this.sentBytes, CHUNK_BYTES);
      this.sentBytes += chunk.byteLength;
      if (!this.#socket.write(chunk)) return;
    }
  }
}
