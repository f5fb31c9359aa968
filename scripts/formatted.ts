/**
 * Formats generated TypeScript as `npm run format` does.
 */
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));

/** Throws an Error when the text is not TypeScript. */
export function formatted(text: string): string {
  const biome = fileURLToPath(new URL("../node_modules/.bin/biome", import.meta.url));
  const run = spawnSync(biome, ["format", "--stdin-file-path=scripts/printed.ts"], { cwd: root, input: text });
  if (run.status !== 0) throw new Error(`biome refused the printed text: ${run.stderr.toString()}`);
  return run.stdout.toString();
}
