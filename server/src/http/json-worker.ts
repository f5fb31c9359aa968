/**
 * The thread in which large bodies are parsed (large-json.ts): takes bytes, gives the value or why it is refused.
 */
import { parentPort } from "node:worker_threads";
import { Refusal } from "@flotilla/contract/errors";
import { checkExtent, parseJson } from "./json.ts";
import type { Parsed } from "./large-json.ts";

function parsed(bytes: Uint8Array): Parsed {
  try {
    checkExtent(bytes);
    return { value: parseJson(bytes) };
  } catch (error) {
    if (error instanceof Refusal) return { code: error.code, text: error.message };
    throw error;
  }
}

parentPort?.on("message", (bytes: Uint8Array) => parentPort?.postMessage(parsed(bytes)));
