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
  /** Code of a refusal, for programs; null: none. */
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
  const text = await textOf(response.body?.pipeThrough(new TextDecoderStream()) ?? [], path);
  return { status: response.status, text, code: response.headers.get(CODE_HEADER) };
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
  const text = await textOf(answer.setEncoding("utf8"), path);
  const code = answer.headers[CODE_HEADER];
  return { status: answer.statusCode ?? 0, text, code: typeof code === "string" ? code : null };
}

async function textOf(chunks: AsyncIterable<string> | Iterable<string>, path: string): Promise<string> {
  let text = "";
  for await (const chunk of chunks) {
    text += chunk;
    if (text.length > ANSWER_BYTES_MAX) throw new Error(`the answer to POST ${path} does not end`);
  }
  return text;
}
