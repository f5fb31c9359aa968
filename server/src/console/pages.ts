/**
 * Serves the console's files under /console/, as `npm run setup` has built them (console/build.ts).
 *
 * Always:
 * - Public, works offline, and runs no script that is not a file of this server: the content security policy
 *   enforces that. Terminals write rules of style while they run, so these may be inline.
 * - Files have the hash of their content in their names and are kept by browsers; the page itself is asked
 *   for each time.
 * - Only files that were there when the first was asked for are served, each read once.
 */
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Refusal } from "@flotilla/contract/errors";
import type { Page } from "../api/page.ts";
import type { Outgoing } from "../http/answer.ts";

const BUILT = fileURLToPath(new URL("../../../console/dist/", import.meta.url));
const PAGE = "index.html";

const TYPES: Readonly<Record<string, string>> = {
  css: "text/css; charset=utf-8",
  html: "text/html; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  svg: "image/svg+xml",
  woff2: "font/woff2",
};

/** The forms in which a file is stored, the best first. */
const ENCODINGS = [
  { name: "br", ending: ".br" },
  { name: "gzip", ending: ".gz" },
] as const;

const HEADERS = {
  "content-security-policy":
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; " +
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "referrer-policy": "no-referrer",
  vary: "accept-encoding",
};

/** People who open the server's address in a browser. Programs get what any unknown path gives. */
const START_PAGE: Page = {
  url: "/",
  isFor: ({ method, headers }) => method === "GET" && /\btext\/html\b/i.test(headers.accept ?? ""),
  answer: async () => ({ status: 302, headers: { location: "/console/", vary: "accept" }, body: "" }),
};

/** The console's pages; `directory`: of the built files. */
export function consolePages(directory: string = BUILT): readonly Page[] {
  const files = new Files(directory);
  return [
    START_PAGE,
    {
      url: "/console",
      answer: async () => ({ status: 302, headers: { location: "/console/" }, body: "" }),
    },
    { url: "/console/", answer: ({ headers }) => files.answer(PAGE, headers["accept-encoding"]) },
    {
      url: "/console/*",
      answer: ({ url = "", headers }) => files.answer(nameOf(url), headers["accept-encoding"]),
    },
  ];
}

/** The file of a URL; the page has many, of which its script chooses what is shown. Pure. */
function nameOf(url: string): string {
  const path = url.replace(/[?#].*$/, "").slice("/console/".length);
  return path.startsWith("assets/") || path === "icon.svg" ? path : PAGE;
}

class Files {
  readonly #directory: string;
  readonly #read = new Map<string, Promise<Buffer>>();
  #names: Promise<ReadonlySet<string>> | null = null;

  constructor(directory: string) {
    this.#directory = directory;
  }

  async answer(name: string, accepted: string | string[] | undefined): Promise<Outgoing> {
    const names = await this.#list();
    if (!names.has(PAGE))
      throw new Refusal("unavailable", "the console was not built; run `npm run setup` on the server's host");
    if (!names.has(name)) throw new Refusal("not_found", "no such file", { resource: { kind: "path" } });
    const encoding = ENCODINGS.find(
      (each) => accepts(String(accepted ?? ""), each.name) && names.has(name + each.ending),
    );
    const headers: Record<string, string> = {
      ...HEADERS,
      "content-type": TYPES[name.slice(name.lastIndexOf(".") + 1)] ?? "application/octet-stream",
      "cache-control": name.startsWith("assets/") ? "public, max-age=31536000, immutable" : "no-cache",
    };
    if (encoding !== undefined) headers["content-encoding"] = encoding.name;
    return { status: 200, headers, body: await this.#content(name + (encoding?.ending ?? "")) };
  }

  #list(): Promise<ReadonlySet<string>> {
    this.#names ??= readdir(this.#directory, { recursive: true })
      .then((names) => new Set(names))
      .catch(() => new Set<string>())
      .then((names) => {
        // It may be built while the server runs.
        if (!names.has(PAGE)) this.#names = null;
        return names;
      });
    return this.#names;
  }

  #content(name: string): Promise<Buffer> {
    const known = this.#read.get(name);
    if (known !== undefined) return known;
    const reading = readFile(join(this.#directory, name));
    this.#read.set(name, reading);
    // The next request reads it again.
    reading.catch(() => this.#read.delete(name));
    return reading;
  }
}

/** Whether an `Accept-Encoding` names the encoding, and not with a quality of 0. Pure. */
const accepts = (header: string, name: string): boolean =>
  header.split(",").some((part) => {
    const [coding = "", quality = ""] = part.split(";").map((piece) => piece.trim().toLowerCase());
    return coding === name && !/^q=0(\.0*)?$/.test(quality);
  });
