/**
 * The frame of an answer is whole at its last byte, and unclear for everything that it cannot count exactly.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { AnswerFrame } from "./answer-frame.ts";

function frameOf(pieces: readonly string[], method = "GET"): AnswerFrame {
  const frame = new AnswerFrame();
  frame.begin(method);
  for (const piece of pieces) frame.take(Buffer.from(piece, "latin1"));
  return frame;
}

const OK = "HTTP/1.1 200 OK\r\n";

const WHOLE: Readonly<Record<string, string>> = {
  "a length": `${OK}content-length: 5\r\n\r\nhello`,
  "a length of zero": `${OK}Content-Length: 0 \r\n\r\n`,
  chunks: `${OK}transfer-encoding: Chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n`,
  "a chunk that holds line ends": `${OK}transfer-encoding: chunked\r\n\r\n4\r\n\r\n\r\n\r\n0\r\n\r\n`,
  "no body by its status": "HTTP/1.1 204 No Content\r\nx: y\r\n\r\n",
  "not modified": 'HTTP/1.1 304 Not Modified\r\netag: "a"\r\n\r\n',
  "a status without a reason": "HTTP/1.1 404\r\ncontent-length: 2\r\n\r\nno",
  "answers before the final one": `HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n${OK}content-length: 1\r\n\r\nx`,
  "a keep-alive that is said": `${OK}connection: keep-alive\r\ncontent-length: 0\r\n\r\n`,
};

for (const [what, bytes] of Object.entries(WHOLE)) {
  test(`an answer with ${what} is whole at its last byte, however it is cut into pieces`, () => {
    assert.ok(frameOf([bytes]).isWhole);
    assert.ok(frameOf([...bytes]).isWhole, "byte by byte");
    for (let at = 1; at < bytes.length; at += 1) {
      assert.ok(!frameOf([bytes.slice(0, at)]).isWhole || what.includes("before"), `cut at ${at}`);
      assert.ok(frameOf([bytes.slice(0, at), bytes.slice(at)]).isWhole, `in two pieces at ${at}`);
    }
  });

  test(`a byte after an answer with ${what} makes it unclear, in the same piece and in a later one`, () => {
    for (const more of ["\n", "\r\n", "H", OK, "\0"]) {
      assert.ok(!frameOf([bytes + more]).isWhole);
      assert.ok(!frameOf([bytes, more]).isWhole);
    }
  });
}

const UNCLEAR: Readonly<Record<string, string>> = {
  "a connection that closes": `${OK}content-length: 0\r\nconnection: x, Close\r\n\r\n`,
  "HTTP/1.0": "HTTP/1.0 200 OK\r\ncontent-length: 0\r\nconnection: keep-alive\r\n\r\n",
  "no length": `${OK}\r\n`,
  "two lengths": `${OK}content-length: 0\r\ncontent-length: 0\r\n\r\n`,
  "a length and chunks": `${OK}content-length: 0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n`,
  "a length that is signed": `${OK}content-length: +0\r\n\r\n`,
  "a length that is a list": `${OK}content-length: 0, 0\r\n\r\n`,
  "another coding": `${OK}transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n`,
  "a chunk with an extension": `${OK}transfer-encoding: chunked\r\n\r\n1;a=b\r\nx\r\n0\r\n\r\n`,
  "a chunk size with a sign": `${OK}transfer-encoding: chunked\r\n\r\n+1\r\nx\r\n0\r\n\r\n`,
  "an endless chunk size": `${OK}transfer-encoding: chunked\r\n\r\n${"0".repeat(40)}\r\n\r\n`,
  "a chunk longer than its size": `${OK}transfer-encoding: chunked\r\n\r\n1\r\nxy\r\n0\r\n\r\n`,
  "a trailer": `${OK}transfer-encoding: chunked\r\n\r\n0\r\nx: y\r\n\r\n`,
  "lines that end without a carriage return": "HTTP/1.1 200 OK\ncontent-length: 0\n\n",
  "one line that ends without a carriage return": `${OK}x: y\ncontent-length: 0\r\n\r\n`,
  "a folded line": `${OK}x: y\r\n z\r\ncontent-length: 0\r\n\r\n`,
  "a space before the colon": `${OK}content-length : 0\r\n\r\n`,
  "a control character": `${OK}x: \0\r\ncontent-length: 0\r\n\r\n`,
  "an upgrade": "HTTP/1.1 101 Switching Protocols\r\n\r\n",
  "a body with 204": "HTTP/1.1 204 No Content\r\ncontent-length: 1\r\n\r\nx",
  "a length with 304": "HTTP/1.1 304 Not Modified\r\ncontent-length: 0\r\n\r\n",
  "something else": "what is this?\r\n\r\n",
  "a head that does not end": `${OK}x: ${"y".repeat(70_000)}\r\ncontent-length: 0\r\n\r\n`,
};

for (const [what, bytes] of Object.entries(UNCLEAR)) {
  test(`an answer with ${what} leaves the connection unclear`, () => {
    assert.ok(!frameOf([bytes]).isWhole);
    const frame = frameOf([...bytes]);
    assert.ok(!frame.isWhole, "byte by byte");
    frame.begin("GET");
    frame.take(Buffer.from(`${OK}content-length: 0\r\n\r\n`));
    assert.ok(!frame.isWhole, "for good");
  });
}

test("an answer to HEAD is unclear: a guest may send its body all the same", () => {
  assert.ok(!frameOf([`${OK}content-length: 5\r\n\r\n`], "HEAD").isWhole);
});

test("a frame counts one answer after the other, and knows whether the next one has begun", () => {
  const frame = new AnswerFrame();
  for (let round = 0; round < 3; round += 1) {
    frame.begin("GET");
    assert.ok(!frame.hasBegun);
    assert.ok(!frame.isWhole);
    frame.take(Buffer.from(`${OK}keep-alive: timeout=${round}\r\ncontent-length: 2\r\n\r\nok`));
    assert.ok(frame.hasBegun);
    assert.ok(frame.isWhole);
    assert.equal(frame.keepMs, round * 1000);
  }
});

test("bytes while no answer is expected make it unclear", () => {
  const frame = new AnswerFrame();
  frame.take(Buffer.from("x"));
  assert.ok(!frame.isWhole);
});
