/**
 * The framed stream of a command's output: what server and SDK must agree on. docs/streams.md describes it
 * for everybody.
 *
 * A frame is a head of EXEC_FRAME_HEAD_BYTES (its kind, three zero bytes, the length of its payload in big
 * endian) and the payload. This is the head that container engines use for the same purpose.
 */

/** The content type of the stream. A caller that accepts it gets it instead of Server-Sent Events. */
export const EXEC_FRAMES_TYPE = "application/vnd.flotilla.exec-frames";

/** Kinds of frames. Readers skip others, so that there may be more. */
export const EXEC_FRAMES = {
  /** Empty; after some seconds of silence. */
  keepAlive: 0,
  /** Bytes as the command wrote them. */
  stdout: 1,
  stderr: 2,
  /** JSON with `exitCode`. The last frame, or error is. */
  exit: 3,
  /** JSON with `code` and `message`: it is unknown how the command ended. */
  error: 4,
} as const;

export type ExecFrameKind = keyof typeof EXEC_FRAMES;

export const EXEC_FRAME_HEAD_BYTES = 8;
