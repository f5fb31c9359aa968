/**
 * A fixed public document, such as the API's documentation page and its script: not an endpoint of the contract.
 */
import type { Outgoing } from "./encode.ts";

export interface Page {
  readonly url: string;
  answer(): Promise<Outgoing>;
}
