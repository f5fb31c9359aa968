"""The service Filesystem, over the Connect protocol with JSON.

Always: a stream ends with one end envelope, unless its connection breaks. A fault of a stream is in that
envelope, and the status is 200. Nothing is compressed.
"""

import json
import select
import struct

import users
from faults import Fault

STREAM = "application/connect+json"
KEEP_ALIVE_SECONDS = 90
END = 2


class Rpc:
    def __init__(self):
        self._watchers = None
        self._calls = {
            "filesystem.Filesystem/Stat": lambda *call: files().get(*call),
            "filesystem.Filesystem/ListDir": lambda *call: files().list_directory(*call),
            "filesystem.Filesystem/MakeDir": lambda *call: files().make_directory(*call),
            "filesystem.Filesystem/Move": lambda *call: files().move(*call),
            "filesystem.Filesystem/Remove": lambda *call: files().remove(*call),
            "filesystem.Filesystem/CreateWatcher": lambda *call: self._watching().create(*call),
            "filesystem.Filesystem/GetWatcherEvents": lambda *call: self._watching().events(*call),
            "filesystem.Filesystem/RemoveWatcher": lambda *call: self._watching().remove(*call),
        }
        self._streams = {"filesystem.Filesystem/WatchDir": self._watch}

    def answer(self, request, user_name):
        name = request.path.lstrip("/")
        content = request.headers.get("content-type", "").split(";")[0].strip()
        stream = self._streams.get(name)
        if stream is None:
            return self._answer_call(request, name, content, user_name)
        if content != STREAM:
            return request.answer(415, "text/plain", f"expected {STREAM}\n".encode())
        request.begin_chunks(200, STREAM)
        end = {}
        try:
            body = request.body()
            stream(request, parse(body[5:]), users.of(user_name))
        except Fault as fault:
            end = {"error": {"code": fault.code, "message": fault.message}}
        except ValueError as error:
            end = {"error": {"code": "invalid_argument", "message": str(error)}}
        request.chunk(envelope(END, end))
        request.end_chunks()

    def _answer_call(self, request, name, content, user_name):
        if content != "application/json":
            return request.answer(415, "text/plain", b"expected application/json\n")
        try:
            call = self._calls.get(name)
            if call is None:
                raise Fault("unimplemented", f"{name} is not implemented")
            request.answer_json(200, call(parse(request.body()), users.of(user_name)))
        except Fault as fault:
            request.answer_json(fault.status, {"code": fault.code, "message": fault.message})
        except (ValueError, TypeError) as error:
            request.answer_json(400, {"code": "invalid_argument", "message": str(error)})

    def _watching(self):
        # Loaded when first needed: it takes longer than all others together.
        import watching

        if self._watchers is None:
            self._watchers = watching.Watchers()
        return self._watchers

    def _watch(self, request, message, user):
        import watching

        watch = watching.Watch(message, user)
        pause = keep_alive_of(request)
        try:
            request.chunk(envelope(0, {"start": {}}))
            while True:
                events = watch.take(min(pause, 5))
                if not events and has_gone(request.connection):
                    return
                for event in events:
                    request.chunk(envelope(0, {"filesystem": event}))
                if not events:
                    request.chunk(envelope(0, {"keepalive": {}}))
        finally:
            watch.close()


def files():
    # Loaded when first needed, as watching.
    import filesystem

    return filesystem


def parse(data):
    try:
        value = json.loads(data or b"{}")
    except RecursionError:
        raise ValueError("the message is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("the message is not an object")
    return value


def envelope(flags, value):
    data = json.dumps(value, separators=(",", ":")).encode()
    return struct.pack(">BI", flags, len(data)) + data


def keep_alive_of(request):
    text = request.headers.get("keepalive-ping-interval", "")
    return max(1, int(text)) if text.isdigit() else KEEP_ALIVE_SECONDS


def has_gone(connection):
    readable, _, _ = select.select([connection], [], [], 0)
    return bool(readable) and connection.recv(1) == b""
