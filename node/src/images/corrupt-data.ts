/**
 * A layer or archive whose bytes are invalid, as opposed to one that exceeds a limit.
 *
 * The message continues a sentence about the layer or archive: "its … is damaged". Callers add which one it
 * is.
 */
export class CorruptData extends Error {
  constructor(message = "its compressed data is damaged") {
    super(message);
  }
}
