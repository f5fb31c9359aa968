/**
 * The lines of an answer of a node that comes in lines, one JSON value each.
 */
const LINE_CHARACTERS_MAX = 64 * 1024;

/** Throws an Error when a line is too long. */
export async function* linesOf(chunks: AsyncIterable<Buffer>): AsyncGenerator<string, undefined> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of chunks) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    if (rest.length > LINE_CHARACTERS_MAX) throw new Error(`a line is longer than ${LINE_CHARACTERS_MAX} characters`);
    yield* lines.filter((line) => line !== "");
  }
}
