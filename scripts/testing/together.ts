/**
 * Runs the test files named by its arguments in this process, each as a suite of its name: run-file.ts starts
 * it.
 */
import { describe } from "node:test";
import { pathToFileURL } from "node:url";
import path from "node:path";

const [timeoutMs, ...files] = process.argv.slice(2);
for (const file of files)
  void describe(file, { timeout: Number(timeoutMs) }, async () => {
    await import(pathToFileURL(path.resolve(file)).href);
  });
