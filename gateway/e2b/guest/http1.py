"""One HTTP/1.1 request on a connection, and its answer.

The peer is the gateway, through Flotilla's bridge: what it sends has been parsed and framed once. Every
connection carries one request. A head has at most HEAD_BYTES_MAX.
"""

import json

HEAD_BYTES_MAX = 64 * 1024
JSON_BYTES_MAX = 16 * 1024 * 1024
PIECE_BYTES = 64 * 1024
REASONS = {200: "OK", 201: "Created", 204: "No Content", 206: "Partial Content", 400: "Bad Request", 404: "Not Found"}


def unquote(text, is_form=False):
    """The text with its escapes decoded; loading the library for it would take longer than all else."""
    first, *rest = (text.replace("+", " ") if is_form else text).encode("latin-1", "replace").split(b"%")
    decoded = bytearray(first)
    for part in rest:
        try:
            decoded += bytes((int(part[:2], 16),)) + part[2:]
        except ValueError:
            decoded += b"%" + part
    return decoded.decode("utf-8", "surrogateescape")


class Broken(Exception):
    """The peer has gone, or does not speak HTTP."""


class Request:
    def __init__(self, connection):
        self.connection = connection
        self._buffer = bytearray()
        head = self._head()
        line, *fields = head.decode("latin-1").split("\r\n")
        try:
            self.method, self.target, _ = line.split(" ", 2)
        except ValueError:
            raise Broken("not HTTP") from None
        self.fields = [tuple(part.strip() for part in field.split(":", 1)) for field in fields if ":" in field]
        self.headers = {name.lower(): value for name, value in self.fields}
        path, _, query = self.target.partition("?")
        self.path = unquote(path)
        pairs = [pair.partition("=") for pair in query.split("&") if pair]
        self.query = {unquote(name, True): unquote(value, True) for name, _, value in pairs}
        self._left = None if "chunked" in self.headers.get("transfer-encoding", "") else int(self.headers.get("content-length", 0))
        self._is_over = False

    def _head(self):
        while True:
            end = self._buffer.find(b"\r\n\r\n")
            if end >= 0:
                head = bytes(self._buffer[:end])
                del self._buffer[: end + 4]
                return head
            if len(self._buffer) > HEAD_BYTES_MAX:
                raise Broken("a head that is too large")
            self._receive()

    def _receive(self):
        data = self.connection.recv(PIECE_BYTES)
        if not data:
            raise Broken("the connection ended")
        self._buffer += data

    def pending(self):
        """Bytes that were received and not read."""
        data = bytes(self._buffer)
        self._buffer.clear()
        return data

    def _take(self, most):
        if not self._buffer:
            self._receive()
        data = bytes(self._buffer[:most])
        del self._buffer[:most]
        return data

    def _line(self):
        while b"\r\n" not in self._buffer:
            if len(self._buffer) > HEAD_BYTES_MAX:
                raise Broken("a line that is too long")
            self._receive()
        line, _, rest = bytes(self._buffer).partition(b"\r\n")
        self._buffer[:] = rest
        return line

    def pieces(self):
        """The body, in pieces."""
        if self._left is not None:
            while self._left > 0:
                data = self._take(min(self._left, PIECE_BYTES))
                self._left -= len(data)
                yield data
            return
        while not self._is_over:
            left = int(self._line().split(b";")[0], 16)
            if left == 0:
                while self._line():
                    pass
                self._is_over = True
                return
            while left > 0:
                data = self._take(min(left, PIECE_BYTES))
                left -= len(data)
                yield data
            self._line()

    def body(self, most=JSON_BYTES_MAX):
        data = bytearray()
        for piece in self.pieces():
            data += piece
            if len(data) > most:
                raise ValueError(f"the body is larger than {most} bytes")
        return bytes(data)

    def begin(self, status, headers):
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Answer')}", "connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace"))

    def answer(self, status, content, data):
        """A whole answer, in one write."""
        head = f"HTTP/1.1 {status} {REASONS.get(status, 'Answer')}\r\nconnection: close\r\n"
        if status != 204:
            head += f"content-type: {content}\r\ncontent-length: {len(data)}\r\n"
        self.connection.sendall(head.encode() + b"\r\n" + data)

    def answer_json(self, status, value):
        self.answer(status, "application/json", json.dumps(value).encode())

    def begin_chunks(self, status, content):
        self.begin(status, {"content-type": content, "transfer-encoding": "chunked"})

    def chunk(self, *parts):
        data = b"".join(parts)
        if data:
            self.connection.sendall(b"%x\r\n%b\r\n" % (len(data), data))

    def end_chunks(self):
        self.connection.sendall(b"0\r\n\r\n")
