/**
 * The least that the HTTP framework does for a request: a process of its own with handlers that do nothing, for the
 * routes that benchmarks ask for.
 *
 * Prints its address on one line and ends with its parent.
 */
import { fastify } from "fastify";

const app = fastify({ logger: false });
app.get("/v1/machines/:id", async () => ({}));
app.post("/v1/machines/:id/exec", async () => ({}));
process.stdout.write(`${await app.listen({ host: "127.0.0.1", port: 0 })}\n`);
process.stdin.on("end", () => process.exit(0)).resume();
