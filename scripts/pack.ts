/**
 * `node scripts/pack.ts FOLDER [sdk | computesdk | ai-sdk]…`: makes the packages of the TypeScript SDK and of
 * the providers on it, as `npm pack` does, from their sources: JavaScript and types. The SDK is for `import`
 * and for `require`, in browsers too; what the providers are for is loaded with `import` alone.
 *
 * In the checkout they run from their TypeScript, without a build. Only what is given to others is built.
 *
 * Always:
 * - The SDK's package has no dependency, and its files import nothing but each other, so that it is bundled
 *   for browsers as it is.
 * - A provider's package has only peer dependencies: the SDK, and the framework that it is for.
 */
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";

const root = path.resolve(import.meta.dirname, "..");

interface Form {
  readonly condition: "import" | "require";
  readonly folder: "esm" | "cjs";
  readonly module: string;
  readonly type: string;
}

const ESM: Form = { condition: "import", folder: "esm", module: "esnext", type: "module" };
const CJS: Form = { condition: "require", folder: "cjs", module: "commonjs", type: "commonjs" };

interface Package {
  /** Its folder in the checkout. */
  readonly from: string;
  /** The name of what `import` of the package gives. */
  readonly entry: string;
  readonly forms: readonly Form[];
  readonly engines: string;
  /** Whether its other files may be imported as well. */
  readonly isOpen: boolean;
}

const PACKAGES = {
  sdk: { from: "sdk", entry: "client", forms: [ESM, CJS], engines: ">=20", isOpen: true },
  computesdk: { from: "providers/computesdk", entry: "provider", forms: [ESM], engines: ">=20", isOpen: false },
  "ai-sdk": { from: "providers/ai-sdk", entry: "tools", forms: [ESM], engines: ">=22", isOpen: false },
} satisfies Readonly<Record<string, Package>>;

type PackageName = keyof typeof PACKAGES;
const NAMES = Object.keys(PACKAGES) as PackageName[];

/** Returns the path of the package, in `folder`. */
export function pack(name: PackageName, folder: string): string {
  const made: Package = PACKAGES[name];
  const stage = mkdtempSync(path.join(tmpdir(), "flotilla-pack-"));
  try {
    const types = path.join(stage, "types");
    if (name !== "sdk") compile(PACKAGES.sdk, ESM, { stage: types, out: types });
    for (const form of made.forms) compile(made, form, { stage, out: path.join(stage, form.folder), sdk: types });
    rmSync(types, { recursive: true, force: true });
    writeFileSync(path.join(stage, "package.json"), JSON.stringify(manifest(made), null, 2));
    for (const file of [`${made.from}/README.md`, "LICENSE"])
      writeFileSync(path.join(stage, path.basename(file)), readFileSync(path.join(root, file)));
    const packed = execFileSync("npm", ["pack", "--json", "--pack-destination", folder], { cwd: stage });
    const [{ filename } = { filename: "" }] = JSON.parse(String(packed)) as readonly { readonly filename: string }[];
    return path.join(folder, filename);
  } finally {
    rmSync(stage, { recursive: true });
  }
}

/** `sdk`: where the types of the SDK are, for what is on top of it. */
function compile(
  { from, entry }: Package,
  { module, type }: Form,
  { stage, out, sdk }: { readonly stage: string; readonly out: string; readonly sdk?: string },
): void {
  mkdirSync(out, { recursive: true });
  const isProvider = sdk !== undefined && from !== PACKAGES.sdk.from;
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
    rootDir: path.join(root, from, "src"),
    outDir: out,
    ...(isProvider
      ? {
          skipLibCheck: true,
          paths: { "@flotilla/sdk": [path.join(sdk, "client.d.ts")], "@flotilla/sdk/*": [path.join(sdk, "*.d.ts")] },
        }
      : {}),
  };
  const config = path.join(stage, "tsconfig.json");
  const files = [path.join(root, from, `src/${entry}.ts`)];
  writeFileSync(config, JSON.stringify({ compilerOptions: options, files }));
  execFileSync(path.join(root, "node_modules/.bin/tsc"), ["-p", config], { stdio: ["ignore", "inherit", "inherit"] });
  rmSync(config);
  writeFileSync(path.join(out, "package.json"), JSON.stringify({ type }));
}

/** The package's own package.json: that of its folder, with what was built instead of the sources. */
function manifest({ from, entry, forms, engines, isOpen }: Package): unknown {
  const own = JSON.parse(readFileSync(path.join(root, from, "package.json"), "utf8")) as Record<string, unknown>;
  const at = (name: string): unknown =>
    Object.fromEntries(
      forms.map(({ condition, folder }) => [
        condition,
        { types: `./${folder}/${name}.d.ts`, default: `./${folder}/${name}.js` },
      ]),
    );
  const { name, version, description, license, type, peerDependencies } = own;
  return {
    ...{ name, version, description, license, type, peerDependencies },
    sideEffects: false,
    engines: { node: engines },
    exports: isOpen ? { ".": at(entry), "./*": at("*") } : { ".": at(entry) },
    files: [...forms.map(({ folder }) => folder), "README.md", "LICENSE"],
  };
}

if (import.meta.main) {
  const [folder = ".", ...names] = process.argv.slice(2);
  for (const name of names) if (!NAMES.includes(name as PackageName)) throw new Error(`${name} is not ${NAMES.join()}`);
  for (const name of names.length === 0 ? NAMES : (names as PackageName[]))
    process.stdout.write(`${pack(name, path.resolve(folder))}\n`);
}
