/**
 * `flotilla image rm REFERENCE…`: removes local images from one node or from all.
 */
import type { Call } from "../call.ts";

export interface RemoveOptions {
  readonly node?: string;
}

export async function run(call: Call, references: readonly string[], { node }: RemoveOptions): Promise<void> {
  const flotilla = call.flotilla();
  for (const reference of references) {
    await flotilla.deleteImage({ query: { reference, ...(node === undefined ? {} : { nodeId: node }) } });
    call.output.line(reference);
  }
}
