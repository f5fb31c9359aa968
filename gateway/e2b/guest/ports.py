"""Requests for other ports of the machine, also those that listen on its loopback only."""

import socket
import threading

PORT = "x-flotilla-port"
HOST = "x-flotilla-host"
# The gateway says so to the visitor, in its form.
CLOSED = "x-flotilla-closed-port"
# The header itself carries the gateway's right to the bridge.
AUTHORIZATION = "x-flotilla-authorization"
DROPPED = ("connection", "x-flotilla-token", PORT, HOST, AUTHORIZATION)
CONNECT_SECONDS = 5


def answer(request):
    """Passes a request to the port that it names, and everything that follows in both directions."""
    port = int(request.headers[PORT])
    try:
        target = socket.create_connection(("127.0.0.1", port), CONNECT_SECONDS)
    except OSError:
        request.begin(502, {CLOSED: port, "content-length": 0})
        return None
    with target:
        target.settimeout(None)
        target.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        is_upgrade = "upgrade" in request.headers
        fields = [(name, value) for name, value in request.fields if name.lower() not in DROPPED]
        if HOST in request.headers:
            fields = [(name, value) for name, value in fields if name.lower() != "host"]
            fields.append(("Host", request.headers[HOST]))
        if AUTHORIZATION in request.headers:
            fields.append(("Authorization", request.headers[AUTHORIZATION]))
        fields.append(("Connection", "Upgrade" if is_upgrade else "close"))
        head = f"{request.method} {request.target} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields)
        target.sendall(head.encode("latin-1") + b"\r\n" + request.pending())
        there = threading.Thread(target=pour, args=(request.connection, target), daemon=True)
        there.start()
        pour(target, request.connection)
    return None


def pour(source, sink):
    try:
        while True:
            data = source.recv(64 * 1024)
            if not data:
                break
            sink.sendall(data)
    except OSError:
        pass
    try:
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass
