/**
 * Changes pieces of the shipped source in this process, when they are imported: what only tests need is not a
 * switch in the product.
 */
import { registerHooks } from "node:module";

export interface Change {
  /** The end of the file's path. */
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

/**
 * An import fails when its file does not have once what is to be changed. Returns the changes that no import
 * has met so far.
 */
export function changeSource(all: readonly Change[]): ReadonlySet<Change> {
  const left = new Set(all);
  registerHooks({
    load(url, context, next) {
      const loaded = next(url, context);
      const changes = all.filter(({ file }) => url.endsWith(`/${file}`));
      if (changes.length === 0) return loaded;
      let source = Buffer.from(loaded.source as Uint8Array).toString();
      for (const change of changes) {
        if (source.split(change.from).length !== 2)
          throw new Error(`${change.file} does not have once: ${change.from}`);
        source = source.replace(change.from, () => change.to);
        left.delete(change);
      }
      return { ...loaded, source };
    },
  });
  return left;
}
