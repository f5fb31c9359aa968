/**
 * Builds the console into console/dist, where the server finds it: bundles the sources with vite, and
 * compresses each file once.
 *
 * Always: the folder is complete when it gets its name. A build that is killed leaves only `dist.new`, which
 * the next one removes; a server that runs keeps the files that it has read.
 *
 * `node console/build.ts KEY` writes KEY, which names the sources, beside the files (scripts/setup compares).
 */
import { readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { extname, join } from "node:path";
import { promisify } from "node:util";
import { brotliCompress, constants, gzip } from "node:zlib";
import { build } from "vite";

const ROOT = import.meta.dirname;
const [NEW, BUILT] = [join(ROOT, "dist.new"), join(ROOT, "dist")];
/** Smaller files gain nothing. */
const COMPRESSED_BYTES_MIN = 512;

/** Parts that change less often than our own code, so browsers keep them over our changes. */
const LIBRARIES = [
  { name: "react", test: /node_modules\/(react|react-dom|scheduler)\// },
  { name: "tanstack", test: /node_modules\/@tanstack\// },
  { name: "xterm", test: /node_modules\/@xterm\// },
  { name: "editor", test: /node_modules\/(@codemirror|@lezer|style-mod|w3c-keyname|crelt)\// },
];

await rm(NEW, { recursive: true, force: true });
await build({
  root: ROOT,
  configFile: false,
  base: "/console/",
  logLevel: "warn",
  build: {
    outDir: NEW,
    emptyOutDir: true,
    target: "es2023",
    // A data: address is an exception that the content security policy need not make.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 1_000,
    rolldownOptions: {
      output: { codeSplitting: { groups: LIBRARIES } },
      // "use client" is for renderers on servers.
      onLog: (level, log, print) => (log.code === "MODULE_LEVEL_DIRECTIVE" ? undefined : print(level, log)),
    },
  },
});
const names = await readdir(NEW, { recursive: true, withFileTypes: true });
await Promise.all(names.filter((entry) => entry.isFile()).map((entry) => compress(join(entry.parentPath, entry.name))));
await writeFile(join(NEW, "built-from"), `${process.argv[2] ?? ""}\n`);
await rm(BUILT, { recursive: true, force: true });
await rename(NEW, BUILT);

/** Writes the file's compressed forms beside it. */
async function compress(path: string): Promise<void> {
  const content = await readFile(path);
  if (content.length < COMPRESSED_BYTES_MIN || ![".js", ".css", ".html", ".svg"].includes(extname(path))) return;
  const brotli = await promisify(brotliCompress)(content, {
    params: { [constants.BROTLI_PARAM_QUALITY]: 10, [constants.BROTLI_PARAM_SIZE_HINT]: content.length },
  });
  await writeFile(`${path}.br`, brotli);
  await writeFile(`${path}.gz`, await promisify(gzip)(content, { level: 9 }));
}
