/**
 * One POST to the server: over its Unix socket for nodes where there is one, else to its url.
 *
 * Always: at most ANSWER_BYTES_MAX of an answer are read.
 */
import { type ClientRequest, type IncomingMessage, type RequestOptions, request as httpRequest } from "node:http";

/** What the server answers to nodes has a few kilobytes. */
const ANSWER_BYTES_MAX = 1024 * 1024;

const CODE_HEADER = "x-error-code";

export interface Post {
  readonly path: string;
  readonly token: string;
  /** JSON. */
  readonly body: string;
  readonly signal: AbortSignal;
}

export interface Answer {
  readonly status: number;
  readonly text: string;
  /** Of a refusal, for programs; null: none. */
  readonly code: string | null;
}

type Begin<Options> = (options: Options, onAnswer: (answer: IncomingMessage) => void) => ClientRequest;

/** Throws an Error when there is no answer. */
export async function postJson(
  { serverUrl, serverSocket }: { readonly serverUrl: string; readonly serverSocket: string | null },
  post: Post,
): Promise<Answer> {
  const { path, token, body, signal } = post;
  if (serverSocket !== null) {
    return await send(httpRequest, { socketPath: serverSocket, path, method: "POST", signal }, post);
  }
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  const response = await fetch(`${serverUrl}${path}`, { method: "POST", headers, body, signal });
  return { status: response.status, text: await response.text(), code: response.headers.get(CODE_HEADER) };
}

/** Sends with the request function of a module. Throws an Error when there is no answer. */
export async function send<Options extends RequestOptions>(
  begin: Begin<Options>,
  options: Options,
  { path, token, body }: Post,
): Promise<Answer> {
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json", host: "localhost" };
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    const length = Buffer.byteLength(body);
    const request = begin({ ...options, headers: { ...headers, "content-length": length } }, resolve);
    request.on("error", reject);
    request.end(body);
  });
  let received = "";
  for await (const chunk of answer.setEncoding("utf8")) {
    received += chunk;
    if (received.length > ANSWER_BYTES_MAX) throw new Error(`the answer to POST ${path} does not end`);
  }
  const code = answer.headers[CODE_HEADER];
  return { status: answer.statusCode ?? 0, text: received, code: typeof code === "string" ? code : null };
}
