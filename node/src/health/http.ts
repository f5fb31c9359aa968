/**
 * The check that a GET is answered with 2xx or 3xx.
 *
 * It looks like a request that came to the app's address: with its host, and through TLS. So apps that answer
 * 400 to a host that they do not know, or redirect what did not come through TLS, are healthy. A redirect is
 * not followed: it shows that the app works.
 *
 * Always: at most HEAD_BYTES_MAX of the head and BODY_BYTES_MAX of the body are read. An answer whose body is
 * longer is good; one that stops in the middle of its body is not.
 */
import { type IncomingMessage, request as httpRequest } from "node:http";
import type { Duplex } from "node:stream";
import type { CheckRun } from "./check-run.ts";
import { FIRST_BYTES, firstLine } from "./first-line.ts";
import { connect } from "./tcp.ts";

const HEAD_BYTES_MAX = 16 * 1024;
const BODY_BYTES_MAX = 64 * 1024;

export async function checkHttp(run: CheckRun): Promise<void> {
  const path = run.check.path ?? "/";
  const connection = await connect(run);
  const end = (): void => void connection.destroy();
  run.signal.addEventListener("abort", end, { once: true });
  try {
    run.awaits(`GET ${path} was not answered`);
    const response = await answerTo(connection, path, run.check.host ?? "localhost");
    const { statusCode: status = 0 } = response;
    const isGood = status >= 200 && status < 400;
    run.awaits(`GET ${path} was answered ${status}, and the answer did not end`);
    const body = await beginningOf(response, isGood ? BODY_BYTES_MAX : FIRST_BYTES, `GET ${path} (${status})`);
    if (isGood) return;
    const said = firstLine(body);
    throw new Error(`GET ${path} was answered ${status}${said === "" ? ", without a body" : `: ${said}`}`);
  } finally {
    run.signal.removeEventListener("abort", end);
    end();
  }
}

/** The head of the answer. */
function answerTo(connection: Duplex, path: string, host: string): Promise<IncomingMessage> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  const request = httpRequest({
    createConnection: () => connection,
    method: "GET",
    path,
    headers: { host, "user-agent": "flotilla-health/1", accept: "*/*", "x-forwarded-proto": "https" },
    maxHeaderSize: HEAD_BYTES_MAX,
  });
  request.on("response", resolve);
  request.on("error", (error) => reject(new Error(`GET ${path} got no good answer: ${faultOf(error)}`)));
  request.on("upgrade", () => reject(new Error(`GET ${path} was answered 101, which it did not ask for`)));
  request.on("close", () => reject(new Error(`GET ${path} got no answer: the connection was closed`)));
  request.end();
  return promise;
}

function faultOf({ code = "", message }: NodeJS.ErrnoException): string {
  if (code === "HPE_HEADER_OVERFLOW") return `its head is larger than ${HEAD_BYTES_MAX / 1024} KiB`;
  if (code.startsWith("HPE_")) return `it is not HTTP (${message})`;
  return code === "ECONNRESET" ? "the connection was closed" : message;
}

/** The first bytes of the body, or all of it. Rejects when it breaks off before. */
async function beginningOf(response: IncomingMessage, bytesMax: number, name: string): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      chunks.push(chunk);
      bytes += chunk.byteLength;
      if (bytes >= bytesMax) break;
    }
  } catch {
    throw new Error(`the answer to ${name} broke off after ${bytes} bytes`);
  }
  return Buffer.concat(chunks);
}
