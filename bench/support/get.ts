/**
 * One GET with its own Host, which fetch does not allow, on a separate connection.
 */
import { once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import { text } from "node:stream/consumers";

export interface Got {
  readonly status: number;
  readonly text: string;
}

/** null: no whole answer. */
export async function get(url: string, headers: Readonly<Record<string, string>>): Promise<Got | null> {
  try {
    const asked = request(url, { headers, agent: false }).end();
    const [answer] = (await once(asked, "response")) as [IncomingMessage];
    return { status: answer.statusCode ?? 0, text: await text(answer) };
  } catch {
    return null;
  }
}
