/**
 * One POST to the server: over its Unix socket for nodes where there is one, else to its url.
 *
 * Always: at most ANSWER_BYTES_MAX of an answer are read.
 */
import { type IncomingMessage, request as httpRequest } from "node:http";

/** What the server answers to nodes has a few hundred bytes. */
const ANSWER_BYTES_MAX = 1024 * 1024;

const CODE_HEADER = "x-error-code";

export interface Post {
  readonly path: string;
  readonly token: string;
  readonly body: unknown;
  readonly signal: AbortSignal;
}

export interface Answer {
  readonly status: number;
  readonly text: string;
  /** Of a refusal, for programs; null: none. */
  readonly code: string | null;
}

/** Throws an Error when there is no answer. */
export async function postJson(
  { serverUrl, serverSocket }: { readonly serverUrl: string; readonly serverSocket: string | null },
  { path, token, body, signal }: Post,
): Promise<Answer> {
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  const text = JSON.stringify(body);
  if (serverSocket === null) {
    const response = await fetch(`${serverUrl}${path}`, { method: "POST", headers, body: text, signal });
    return { status: response.status, text: await response.text(), code: response.headers.get(CODE_HEADER) };
  }
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    const request = httpRequest(
      { socketPath: serverSocket, path, method: "POST", signal, headers: { ...headers, host: "localhost" } },
      resolve,
    );
    request.on("error", reject);
    request.end(text);
  });
  let received = "";
  for await (const chunk of answer.setEncoding("utf8")) {
    received += chunk;
    if (received.length > ANSWER_BYTES_MAX) throw new Error(`the answer to POST ${path} does not end`);
  }
  const code = answer.headers[CODE_HEADER];
  return { status: answer.statusCode ?? 0, text: received, code: typeof code === "string" ? code : null };
}
