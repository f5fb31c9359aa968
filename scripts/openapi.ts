/**
 * `npm run openapi`: prints the API's description, as a server serves it at `/openapi.json`, for generators
 * of clients.
 */
import { openApiDocument } from "@flotilla/contract/openapi";

process.stdout.write(`${JSON.stringify(openApiDocument(), null, 2)}\n`);
