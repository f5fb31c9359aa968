"""The services Process and Filesystem, over the Connect protocol with JSON.

Always: a stream ends with one end envelope, unless its connection breaks. A fault of a stream is in that
envelope, and the status is 200. Nothing is compressed.
"""

import base64
import json
import select
import struct
import threading
import time

import users
from faults import Fault

STREAM = "application/connect+json"
KEEP_ALIVE_SECONDS = 90
END = 2


class Rpc:
    def __init__(self, processes):
        self._processes = processes
        self._watchers = None
        self._calls = {
            "process.Process/List": lambda request, user: {"processes": processes.list()},
            "process.Process/Update": self._update,
            "process.Process/SendInput": self._send_input,
            "process.Process/SendSignal": self._send_signal,
            "process.Process/CloseStdin": self._close_input,
            "filesystem.Filesystem/Stat": lambda *call: files().get(*call),
            "filesystem.Filesystem/ListDir": lambda *call: files().list_directory(*call),
            "filesystem.Filesystem/MakeDir": lambda *call: files().make_directory(*call),
            "filesystem.Filesystem/Move": lambda *call: files().move(*call),
            "filesystem.Filesystem/Remove": lambda *call: files().remove(*call),
            "filesystem.Filesystem/CreateWatcher": lambda *call: self._watching().create(*call),
            "filesystem.Filesystem/GetWatcherEvents": lambda *call: self._watching().events(*call),
            "filesystem.Filesystem/RemoveWatcher": lambda *call: self._watching().remove(*call),
        }
        self._streams = {
            "process.Process/Start": self._start,
            "process.Process/Connect": self._connect,
            "filesystem.Filesystem/WatchDir": self._watch,
        }

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

    def _update(self, request, _user):
        size = (request.get("pty") or {}).get("size") or {}
        self._processes.find(request.get("process")).resize(int(size.get("cols", 80)), int(size.get("rows", 24)))
        return {}

    def _send_input(self, request, _user):
        value = request.get("input") or {}
        data = base64.b64decode(value.get("pty") or value.get("stdin") or "")
        self._processes.find(request.get("process")).write(data, "pty" in value)
        return {}

    def _send_signal(self, request, _user):
        from processes import SIGNALS

        number = SIGNALS.get(request.get("signal"))
        if number is None:
            raise Fault("invalid_argument", f"unknown signal {request.get('signal')}")
        process = self._processes.find(request.get("process"))
        if process.has_ended:
            raise Fault("not_found", f"process with pid {process.pid} not found")
        process.signal(number)
        return {}

    def _close_input(self, request, _user):
        self._processes.find(request.get("process")).close_input()
        return {}

    def _start(self, request, message, user):
        process = self._processes.start(message, user)
        stream = process.attach()
        self._processes.begin(process)
        seconds = timeout_of(request)
        if seconds is not None:
            timer = threading.Timer(seconds, process.end_late)
            timer.daemon = True
            timer.start()
        self._show(request, process, stream, None)

    def _connect(self, request, message, _user):
        process = self._processes.find(message.get("process"))
        seconds = timeout_of(request)
        until = None if seconds is None else time.monotonic() + seconds
        self._show(request, process, process.attach(), until)

    def _show(self, request, process, stream, until):
        pause = keep_alive_of(request)
        try:
            request.chunk(event_of({"start": {"pid": process.pid}}))
            while True:
                left = pause if until is None else min(pause, max(0, until - time.monotonic()))
                event = stream.take(left)
                if event is None and until is not None and time.monotonic() >= until:
                    raise Fault("deadline_exceeded", "the time of this stream is over")
                if event is None:
                    request.chunk(event_of({"keepalive": {}}))
                elif event[0] == "end":
                    if process.is_late:
                        raise Fault("deadline_exceeded", "the time of the process is over")
                    return request.chunk(event_of({"end": ending_of(event[1])}))
                else:
                    data = base64.b64encode(event[1]).decode()
                    request.chunk(event_of({"data": {event[0]: data}}))
        finally:
            process.detach(stream)

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


def event_of(value):
    return envelope(0, {"event": value})


def ending_of(code):
    if code >= 0:
        status = f"exit status {code}"
        return {"exitCode": code, "exited": True, "status": status, **({} if code == 0 else {"error": status})}
    status = f"signal: {NAMES.get(-code, -code)}"
    return {"exitCode": -1, "exited": False, "status": status, "error": status}


# As the clients' own service names them.
NAMES = {1: "hangup", 2: "interrupt", 3: "quit", 6: "aborted", 9: "killed", 11: "segmentation fault", 13: "broken pipe", 15: "terminated"}


def timeout_of(request):
    text = request.headers.get("connect-timeout-ms")
    return int(text) / 1000 if text is not None and text.isdigit() and int(text) > 0 else None


def keep_alive_of(request):
    text = request.headers.get("keepalive-ping-interval", "")
    return max(1, int(text)) if text.isdigit() else KEEP_ALIVE_SECONDS


def has_gone(connection):
    readable, _, _ = select.select([connection], [], [], 0)
    return bool(readable) and connection.recv(1) == b""
