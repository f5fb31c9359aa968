/**
 * A fixed public document, such as the API's documentation page or a file of the console: not an endpoint of
 * the contract.
 */
import type { IncomingMessage } from "node:http";
import type { Outgoing } from "../http/answer.ts";

export interface Page {
  readonly url: string;
  /** Whether it is for the caller of this request; for others the path is unknown. Absent: it is for all. */
  isFor?(message: IncomingMessage): boolean;
  answer(message: IncomingMessage): Promise<Outgoing>;
}
