/**
 * The least that the HTTP framework does for a request: a separate process with empty handlers for the routes that
 * benchmarks call. It also plays the listener in a machine: an upload to `/` is read and discarded.
 *
 * Prints its address on one line and ends with its parent.
 */
import { fastify } from "fastify";

const app = fastify({ logger: false });
app.get("/v1/machines/:id", async () => ({}));
app.post("/v1/machines/:id/exec", async () => ({}));
app.get("/", async () => ({}));
app.post("/", async () => ({}));
app.addContentTypeParser("application/octet-stream", (_request, payload, done) => {
  payload.once("end", () => done(null)).resume();
});
process.stdout.write(`${await app.listen({ host: "127.0.0.1", port: 0 })}\n`);
process.stdin.on("end", () => process.exit(0)).resume();
