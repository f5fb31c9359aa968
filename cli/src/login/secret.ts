/**
 * Asks for a secret on a terminal without echo.
 *
 * Always: the terminal's settings are restored however the question ends. Pasted text that ends with a line
 * break counts as entered. Ctrl-C, Ctrl-D and a stop request cancel the question.
 */
import { StringDecoder } from "node:string_decoder";
import type { World } from "../call.ts";
import { Failure } from "../failure.ts";

const ENTER = /[\r\n]/;
const CANCEL = /[\x03\x04]/;
const ERASE = /[\x7f\b]/;

/** Throws a Failure where there is no terminal. */
export async function readSecret({ streams, onStopSignal }: World, question: string): Promise<string> {
  const { input, errors } = streams;
  if (!input.isTTY) {
    throw new Failure("there is no terminal to ask for the key on", "give it on standard input, with --key-stdin");
  }
  const cancelled = new Failure("cancelled; nothing was saved");
  const stopListening = onStopSignal(() => {
    input.setRawMode(false);
    input.destroy(cancelled);
  });
  input.setRawMode(true);
  errors.write(question);
  const decoder = new StringDecoder("utf8");
  let secret = "";
  try {
    for await (const chunk of input) {
      for (const character of decoder.write(chunk as Buffer)) {
        if (ENTER.test(character)) return secret.trim();
        if (CANCEL.test(character)) throw cancelled;
        secret = ERASE.test(character) ? secret.slice(0, -1) : secret + character;
      }
    }
    return secret.trim();
  } finally {
    stopListening();
    input.setRawMode(false);
    input.pause();
    errors.write("\n");
  }
}
