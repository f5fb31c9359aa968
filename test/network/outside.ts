/**
 * A program for tests: the servers of the outside. HTTP at every given address, which reports the caller's
 * address; names over UDP at port 53, from a file that the test replaces (TTL 0).
 *
 * Takes the names' file, the name server's address, the HTTP port and the addresses; prints `listening`.
 */
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { answerTo, questionOf, RESPONSE_CODES, TYPE_A } from "../../node/src/network/dns-message.ts";

const [namesPath = "", namesAddress = "", port = "", ...addresses] = process.argv.slice(2);

for (const address of addresses) {
  const server = createServer((request, response) => {
    const bytes = Number(/^\/bytes\/(\d+)$/.exec(request.url ?? "")?.[1] ?? 0);
    response.end(bytes > 0 ? Buffer.alloc(bytes, 120) : `${address} to ${request.socket.remoteAddress}\n`);
  });
  server.listen(Number(port), address);
  await once(server, "listening");
}
const names = createSocket("udp4");
names.on("message", (query, { address, port: from }) => {
  const question = questionOf(query);
  if (question === null) return;
  const table = JSON.parse(readFileSync(namesPath, "utf8")) as Record<string, readonly string[]>;
  const found = table[question.name.toLowerCase()];
  const code = found === undefined ? RESPONSE_CODES.noSuchName : RESPONSE_CODES.ok;
  names.send(
    answerTo(query, question, { code, addresses: question.type === TYPE_A ? (found ?? []) : [] }),
    from,
    address,
  );
});
names.bind(53, namesAddress);
await once(names, "listening");
process.stdout.write("listening\n");
