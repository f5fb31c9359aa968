/**
 * `node scripts/pack-sdk.ts FOLDER`: makes the package of the TypeScript SDK, as `npm pack` does, from
 * sdk/src: JavaScript for `import` and for `require`, and the types of both.
 *
 * In the checkout the SDK runs from its TypeScript, without a build. Only what is given to others is built.
 *
 * Always: the package has no dependency, and its files import nothing but each other, so that it is bundled
 * for browsers as it is.
 */
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";

const root = path.resolve(import.meta.dirname, "..");
const FORMS = { import: { folder: "esm", module: "esnext" }, require: { folder: "cjs", module: "commonjs" } } as const;
const TYPES = { esm: "module", cjs: "commonjs" } as const;

/** Returns the path of the package, in `folder`. */
export function packSdk(folder: string): string {
  const stage = mkdtempSync(path.join(tmpdir(), "flotilla-sdk-"));
  try {
    for (const form of Object.values(FORMS)) compile(stage, form);
    writeFileSync(path.join(stage, "package.json"), JSON.stringify(manifest(), null, 2));
    for (const name of ["sdk/README.md", "LICENSE"])
      writeFileSync(path.join(stage, path.basename(name)), readFileSync(path.join(root, name)));
    const packed = execFileSync("npm", ["pack", "--json", "--pack-destination", folder], { cwd: stage });
    const [made] = JSON.parse(String(packed)) as readonly { readonly filename: string }[];
    return path.join(folder, made?.filename ?? "");
  } finally {
    rmSync(stage, { recursive: true });
  }
}

function compile(stage: string, { folder, module }: (typeof FORMS)[keyof typeof FORMS]): void {
  const out = path.join(stage, folder);
  mkdirSync(out);
  const options = {
    target: "es2022",
    lib: ["es2024", "esnext.disposable", "dom", "dom.iterable", "dom.asynciterable"],
    types: [],
    strict: true,
    exactOptionalPropertyTypes: true,
    module,
    moduleResolution: "bundler",
    rewriteRelativeImportExtensions: true,
    declaration: true,
    rootDir: path.join(root, "sdk/src"),
    outDir: out,
  };
  const config = path.join(stage, "tsconfig.json");
  writeFileSync(config, JSON.stringify({ compilerOptions: options, files: [path.join(root, "sdk/src/client.ts")] }));
  execFileSync(path.join(root, "node_modules/.bin/tsc"), ["-p", config], { stdio: ["ignore", "inherit", "inherit"] });
  rmSync(config);
  writeFileSync(path.join(out, "package.json"), JSON.stringify({ type: TYPES[folder] }));
}

/** The package's own package.json: that of sdk/, with what was built instead of the sources. */
function manifest(): unknown {
  const own = JSON.parse(readFileSync(path.join(root, "sdk/package.json"), "utf8")) as Record<string, unknown>;
  const at = (name: string): unknown =>
    Object.fromEntries(
      Object.entries(FORMS).map(([condition, { folder }]) => [
        condition,
        { types: `./${folder}/${name}.d.ts`, default: `./${folder}/${name}.js` },
      ]),
    );
  const { name, version, description, license, type } = own;
  return {
    name,
    version,
    description,
    license,
    type,
    sideEffects: false,
    engines: { node: ">=20" },
    exports: { ".": at("client"), "./*": at("*") },
    files: ["esm", "cjs", "README.md", "LICENSE"],
  };
}

if (import.meta.main) process.stdout.write(`${packSdk(path.resolve(process.argv[2] ?? "."))}\n`);
