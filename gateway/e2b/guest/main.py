"""The gateway's helper in a machine: commands, files and ports of an E2B sandbox, over HTTP on one port.

Always:
- A request without the token of the gateway gets 401, before anything else of it is read.
- A failure of one request ends that one only.
- What is in the machine outlives the gateway: it comes back, and connects again.

It keeps nothing on disk. One that ends is started again by the gateway's next request, without the list of
the commands before.
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
    def __init__(self, token, environment):
        self._token = token.encode()
        self._environment = environment
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
        if request.path == "/envs":
            return request.answer_json(200, self._environment)
        if request.path == "/init" and request.method == "POST":
            self._environment.update(json.loads(request.body())["environment"])
            return request.answer(204, "", b"")
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
                from processes import Processes
                from rpc import Rpc

                self._loaded = Rpc(Processes(self._environment))
        return self._loaded

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
    Helper(given["token"], given["environment"]).serve(listener)


if __name__ == "__main__":
    request = json.loads(sys.stdin.buffer.read())
    listening = listen(int(request["port"]))
    os.write(1, b"listening\n")
    serve(request, listening)
