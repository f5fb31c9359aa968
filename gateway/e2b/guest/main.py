"""The gateway's helper in a machine for files, code and ports of an E2B sandbox, over HTTP on one port.

Always:
- A request without the token of the gateway gets 401, before anything else of it is read.
- A failure of one request ends that one only.
- What is in the machine outlives the gateway: it comes back, and connects again.

It keeps nothing on disk. One that ends is started again by the gateway's next request, without the contexts
of the code interpreter. Commands have their own helper (commands/), which also has the variables.
"""

import json
import os
import socket
import sys
import threading
from _operator import _compare_digest as is_same

from http1 import Broken, Request

HEAD_SECONDS = 30
CODE_PORT = "49999"
PORT = "x-flotilla-port"


class Helper:
    def __init__(self, token, commands):
        self._token = token.encode()
        self._commands = commands
        self._lock = threading.Lock()
        self._loaded = None
        self._code = None

    def serve(self, listener):
        threading.Thread(target=self._load, daemon=True).start()
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection):
        with connection:
            try:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.settimeout(HEAD_SECONDS)
                request = Request(connection)
                connection.settimeout(None)
                self._route(request)
                connection.shutdown(socket.SHUT_WR)
            except (Broken, OSError, ValueError):
                return

    def _route(self, request):
        given = request.headers.get("x-flotilla-token", "").encode("latin-1")
        if self._token and not is_same(given, self._token):
            return request.answer_json(401, {"code": 401, "message": "not the gateway of this machine"})
        port = request.headers.get(PORT)
        if port == CODE_PORT:
            return self._code_of(request)
        if port is not None:
            import ports

            return ports.answer(request)
        user = request.headers.get("x-flotilla-user", "")
        if request.path == "/health":
            return request.answer(204, "", b"")
        if request.path == "/files":
            import content

            return content.answer(request, request.query.get("username") or user)
        if request.path == "/metrics":
            import metrics

            return request.answer_json(200, metrics.sample())
        if request.method == "POST" and request.path.count("/") == 2:
            return self._load().answer(request, user)
        return request.answer_json(404, {"code": 404, "message": "no such path"})

    def _load(self):
        """The services, loaded while the first request is on its way, so that the sandbox is there sooner."""
        with self._lock:
            if self._loaded is None:
                from rpc import Rpc

                self._loaded = Rpc()
        return self._loaded

    def _environment(self):
        """The variables of every command, from the helper that has them."""
        with socket.create_connection(("127.0.0.1", self._commands), HEAD_SECONDS) as connection:
            connection.sendall(b"GET /envs HTTP/1.1\r\nx-flotilla-token: " + self._token + b"\r\n\r\n")
            with connection.makefile("rb") as answer:
                return json.loads(answer.read().partition(b"\r\n\r\n")[2])

    def _code_of(self, request):
        if self._code is None:
            import contexts

            self._code = contexts.CodeContexts(self._environment)
        self._code.answer(request)


def listen(port):
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("0.0.0.0", port))
    listener.listen(256)
    return listener


def serve(given, listener):
    """Serves for ever. Neither output nor input of its caller stays open."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    Helper(given["token"], given["commands"]).serve(listener)


if __name__ == "__main__":
    request = json.loads(sys.stdin.buffer.read())
    listening = listen(int(request["port"]))
    os.write(1, b"listening\n")
    serve(request, listening)
