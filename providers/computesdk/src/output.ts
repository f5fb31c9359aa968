/**
 * The output of a command as text, while it runs and at its end.
 *
 * Always: at most OUTPUT_BYTES_MAX of it are held. A command that writes more is ended with an error, because
 * ComputeSDK has no way to say that output is incomplete.
 */
import type { ExecEvent } from "@flotilla/sdk";

const OUTPUT_BYTES_MAX = 64 * 1024 * 1024;

interface Readers {
  readonly onStdout?: ((text: string) => void) | undefined;
  readonly onStderr?: ((text: string) => void) | undefined;
}

/** Reads to the command's end. Bytes that are not UTF-8 become replacement characters. */
export async function collect(
  events: AsyncIterable<ExecEvent>,
  { onStdout, onStderr }: Readers,
): Promise<{ readonly stdout: string; readonly stderr: string; readonly exitCode: number }> {
  const stdout = new Text(onStdout);
  const stderr = new Text(onStderr);
  let bytes = 0;
  let exitCode = -1;
  for await (const event of events) {
    if (event.kind === "exit") {
      ({ exitCode } = event);
      continue;
    }
    bytes += event.bytes.byteLength;
    // Leaving the loop ends the command.
    if (bytes > OUTPUT_BYTES_MAX) throw new Error(`the command wrote more than ${OUTPUT_BYTES_MAX} bytes`);
    (event.kind === "stdout" ? stdout : stderr).add(event.bytes);
  }
  return { stdout: stdout.end(), stderr: stderr.end(), exitCode };
}

class Text {
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  readonly #pieces: string[] = [];
  readonly #onPiece: ((text: string) => void) | undefined;

  constructor(onPiece: ((text: string) => void) | undefined) {
    this.#onPiece = onPiece;
  }

  add(bytes: Uint8Array): void {
    this.#keep(this.#decoder.decode(bytes, { stream: true }));
  }

  end(): string {
    this.#keep(this.#decoder.decode());
    return this.#pieces.join("");
  }

  #keep(piece: string): void {
    if (piece === "") return;
    this.#pieces.push(piece);
    this.#onPiece?.(piece);
  }
}
