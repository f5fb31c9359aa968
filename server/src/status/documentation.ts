/**
 * The page that shows the API's description: swagger-ui from its npm package, with nothing loaded from
 * elsewhere.
 *
 * Always: public, works offline, and runs no script that is not a file of this
 * server. The content security policy enforces that; swagger-ui needs inline styles, not inline scripts.
 */
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import type { Page } from "../api/page.ts";

const HTML = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Flotilla API</title>
<link rel="stylesheet" href="/docs/swagger-ui.css">
</head>
<body>
<div id="description"></div>
<noscript>The description is at <a href="/openapi.json">/openapi.json</a>.</noscript>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
`;

const START = `SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#description",
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  docExpansion: "list",
});
`;

const HEADERS = {
  "content-security-policy":
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; " +
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "referrer-policy": "no-referrer",
  "cache-control": "public, max-age=3600",
};

const page = (url: string, contentType: string, read: () => Promise<string | Buffer>): Page => ({
  url,
  answer: async () => ({ status: 200, headers: { ...HEADERS, "content-type": contentType }, body: await read() }),
});

/** Read once, with the first request: answers that are not read must not each hold a copy of 1.4 MB. */
function packaged(name: string): () => Promise<Buffer> {
  let reading: Promise<Buffer> | null = null;
  return () => {
    reading ??= readFile(fileURLToPath(import.meta.resolve(`swagger-ui-dist/${name}`))).catch((error: unknown) => {
      // The next request reads it again.
      reading = null;
      throw error;
    });
    return reading;
  };
}

export const documentationPages: readonly Page[] = [
  page("/docs", "text/html; charset=utf-8", async () => HTML),
  page("/docs/start.js", "text/javascript; charset=utf-8", async () => START),
  page("/docs/swagger-ui.css", "text/css; charset=utf-8", packaged("swagger-ui.css")),
  page("/docs/swagger-ui-bundle.js", "text/javascript; charset=utf-8", packaged("swagger-ui-bundle.js")),
];
