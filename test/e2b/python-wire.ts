/**
 * The requests of E2B's client for Python as bytes on a connection: headers in its order and case, JSON as
 * its encoders print it, frames as it makes them; and answers as it reads them.
 *
 * Two of its forms are here. `older` is that of 2.31, recorded: httpx for REST and files, its own client on
 * httpcore for calls of services. `newer` is that from 2.35 on, whose calls of services are a library's.
 */
import { once } from "node:events";
import { connect } from "node:net";
import type { IncomingMessage } from "node:http";
import type { Readable } from "node:stream";

export type Form = "older" | "newer";

export interface Answer {
  readonly status: number;
  readonly headers: IncomingMessage["headers"];
  readonly body: Buffer;
  /** The body as JSON. */
  json<T = Record<string, unknown>>(): T;
}

const VERSIONS: Readonly<Record<Form, string>> = { older: "2.31.0", newer: "2.45.1" };
const AGENT = (form: Form): string => `e2b-python-sdk/${VERSIONS[form]}`;

/** Sends the bytes on a new connection, and reads the answer to its end. */
async function send(url: string, head: readonly string[], body: Uint8Array = Buffer.alloc(0)): Promise<Answer> {
  const { hostname, port } = new URL(url);
  const socket = connect({ host: hostname, port: Number(port) });
  await once(socket, "connect");
  socket.write(Buffer.concat([Buffer.from(`${head.join("\r\n")}\r\n\r\n`), body]));
  const whole = await readAnswer(socket);
  socket.destroy();
  const answer: Answer = { ...whole, json: () => JSON.parse(whole.body.toString()) as never };
  return answer;
}

async function readAnswer(socket: Readable): Promise<Omit<Answer, "json">> {
  let bytes = Buffer.alloc(0);
  let parsed: Omit<Answer, "json"> | null = null;
  for await (const piece of socket) {
    bytes = Buffer.concat([bytes, piece as Buffer]);
    parsed = parseAnswer(bytes);
    if (parsed !== null) return parsed;
  }
  throw new Error(`the connection ended in the middle of an answer: ${bytes.toString("latin1").slice(0, 500)}`);
}

/** null: there is more to come. */
function parseAnswer(bytes: Buffer): Omit<Answer, "json"> | null {
  const end = bytes.indexOf("\r\n\r\n");
  if (end === -1) return null;
  const [first = "", ...lines] = bytes.subarray(0, end).toString("latin1").split("\r\n");
  const headers = Object.fromEntries(
    lines.map((line) => [line.slice(0, line.indexOf(":")).toLowerCase(), line.slice(line.indexOf(":") + 1).trim()]),
  );
  const status = Number(first.split(" ")[1]);
  const rest = bytes.subarray(end + 4);
  if (headers["transfer-encoding"] === "chunked") {
    const body = unchunked(rest);
    return body === null ? null : { status, headers, body };
  }
  const length = status === 204 ? 0 : Number(headers["content-length"] ?? 0);
  return rest.byteLength < length ? null : { status, headers, body: rest.subarray(0, length) };
}

function unchunked(bytes: Buffer): Buffer | null {
  const pieces: Buffer[] = [];
  for (let at = 0; ; ) {
    const line = bytes.indexOf("\r\n", at);
    if (line === -1) return null;
    const length = Number.parseInt(bytes.subarray(at, line).toString(), 16);
    if (bytes.byteLength < line + 2 + length + 2) return null;
    if (length === 0) return Buffer.concat(pieces);
    pieces.push(bytes.subarray(line + 2, line + 2 + length));
    at = line + 2 + length + 2;
  }
}

/** A call of the REST interface, as httpx sends it. */
export function rest(url: string, form: Form, key: string | null) {
  return (method: string, path: string, json?: unknown): Promise<Answer> => {
    const body = json === undefined ? Buffer.alloc(0) : Buffer.from(JSON.stringify(json));
    const isEmpty = json === undefined;
    return send(
      url,
      [
        `${method} ${path} HTTP/1.1`,
        `Host: ${new URL(url).host}`,
        "Accept: */*",
        "Accept-Encoding: gzip, deflate",
        "Connection: keep-alive",
        `User-Agent: ${AGENT(form)}`,
        ...["lang: python", "lang_version: 3.11.2", `package_version: ${VERSIONS[form]}`, "publisher: e2b"],
        ...["sdk_runtime: python", "system: Linux"],
        ...(key === null ? [] : [`X-API-KEY: ${key}`]),
        ...(isEmpty && method === "POST" ? ["Content-Length: 0"] : []),
        ...(isEmpty ? [] : [`Content-Length: ${body.byteLength}`, "Content-Type: application/json"]),
      ],
      body,
    );
  };
}

export interface SandboxDoor {
  readonly url: string;
  readonly form: Form;
  readonly id: string;
  readonly token: string;
}

const sandboxHeaders = ({ id, token, form }: SandboxDoor): readonly string[] => [
  `User-Agent: ${AGENT(form)}`,
  `E2b-Sandbox-Id: ${id}`,
  "E2b-Sandbox-Port: 49983",
  `X-Access-Token: ${token}`,
];

/** `GET` of the sandbox's service: files and health. */
export const get = (door: SandboxDoor, path: string, more: readonly string[] = []): Promise<Answer> =>
  send(door.url, [
    `GET ${path} HTTP/1.1`,
    `Host: ${new URL(door.url).host}`,
    ...["Accept: */*", "Accept-Encoding: gzip, deflate", "Connection: keep-alive"],
    ...sandboxHeaders(door),
    ...more,
  ]);

/** An upload as a form, with the boundary that httpx draws and its escapes of names. */
export function upload(door: SandboxDoor, query: string, files: readonly (readonly [name: string, content: Buffer])[]) {
  const boundary = "2f6ad1f0b62a4f3b9d1c7f0a5e8b4c33";
  const parts = files.flatMap(([name, content]) => [
    Buffer.from(
      `--${boundary}\r\nContent-Disposition: form-data; name="file"; filename="${name.replaceAll('"', "%22")}"\r\n` +
        `Content-Type: ${name.endsWith(".txt") ? "text/plain" : "application/octet-stream"}\r\n\r\n`,
    ),
    content,
    Buffer.from("\r\n"),
  ]);
  const body = Buffer.concat([...parts, Buffer.from(`--${boundary}--\r\n`)]);
  return post(door, `/files${query}`, [`Content-Type: multipart/form-data; boundary=${boundary}`], body);
}

/** An upload of bytes, compressed or not. */
export const uploadBytes = (door: SandboxDoor, query: string, body: Buffer, more: readonly string[] = []) =>
  post(door, `/files${query}`, ["Content-Type: application/octet-stream", ...more], body);

const post = (door: SandboxDoor, path: string, headers: readonly string[], body: Buffer): Promise<Answer> =>
  send(
    door.url,
    [
      `POST ${path} HTTP/1.1`,
      `Host: ${new URL(door.url).host}`,
      ...["Accept: */*", "Accept-Encoding: gzip, deflate", "Connection: keep-alive"],
      ...sandboxHeaders(door),
      `Content-Length: ${body.byteLength}`,
      ...headers,
    ],
    body,
  );

/** A message as the encoder of each form prints it. */
const encoded = (form: Form, message: object): Buffer =>
  Buffer.from(form === "older" ? printed(message) : JSON.stringify(message));

/** Two blanks for each level, and an empty message without a line. */
const printed = (message: object): string =>
  Object.keys(message).length === 0 ? "{}" : JSON.stringify(message, null, 2);

/** A call that has one answer. */
export function unary(door: SandboxDoor, method: string, message: object, more: readonly string[] = []) {
  const { form, url } = door;
  const body = encoded(form, message);
  const own =
    form === "older"
      ? [...more, "connect-protocol-version: 1", "content-encoding: identity", "content-type: application/json"]
      : [
          ...["content-type: application/json", "connect-protocol-version: 1", "connect-timeout-ms: 60000"],
          ...["accept: */*", "accept-encoding: gzip, deflate", ...more],
        ];
  const head = [
    `POST /${method} HTTP/1.1`,
    `Host: ${new URL(url).host}`,
    ...sandboxHeaders(door),
    ...own,
    `Content-Length: ${body.byteLength}`,
  ];
  return send(url, head, body);
}

/** A call whose answer is a stream, read to its end. */
export async function stream(
  door: SandboxDoor,
  method: string,
  message: object,
  { timeoutMs = 60_000, more = [] }: { readonly timeoutMs?: number; readonly more?: readonly string[] } = {},
): Promise<Streamed> {
  const { form, url } = door;
  const payload = encoded(form, message);
  const header = Buffer.alloc(5);
  header.writeUInt32BE(payload.byteLength, 1);
  const body = Buffer.concat([header, payload]);
  const timeout = timeoutMs === 0 ? [] : [`connect-timeout-ms: ${timeoutMs}`];
  const own =
    form === "older"
      ? [...timeout, "connect-protocol-version: 1", "connect-content-encoding: identity"]
      : [...timeout, "connect-protocol-version: 1", "connect-accept-encoding: gzip", "accept-encoding: gzip, deflate"];
  const head = [
    `POST /${method} HTTP/1.1`,
    `Host: ${new URL(url).host}`,
    ...sandboxHeaders(door),
    ...["Keepalive-Ping-Interval: 50", ...more],
    ...own,
    "content-type: application/connect+json",
    `Content-Length: ${body.byteLength}`,
  ];
  return readEnvelopes(await send(url, head, body));
}

export interface Streamed {
  readonly messages: readonly Record<string, Record<string, unknown>>[];
  /** What the last envelope says. */
  readonly error: { readonly code: string; readonly message?: string } | null;
}

/** Reads as both forms do: messages without compression, then one envelope that ends the stream. */
function readEnvelopes({ status, headers, body }: Answer): Streamed {
  if (status !== 200) throw new Error(`the stream was answered with ${status}: ${body.toString()}`);
  if (headers["content-type"] !== "application/connect+json") throw new Error(`it is ${headers["content-type"]}`);
  const messages: Record<string, Record<string, unknown>>[] = [];
  for (let at = 0; ; ) {
    const [flags, length] = [body.readUInt8(at), body.readUInt32BE(at + 1)];
    const message = JSON.parse(body.subarray(at + 5, at + 5 + length).toString()) as Streamed["messages"][number];
    at += 5 + length;
    if (flags === 2) {
      if (at !== body.byteLength) throw new Error("something follows the end of the stream");
      return { messages, error: (message["error"] as unknown as Streamed["error"]) ?? null };
    }
    if (flags !== 0) throw new Error(`an envelope has the flags ${flags}`);
    messages.push(message);
  }
}
