"""Changes below a directory, from the kernel's inotify.

Always: a watch ends with its stream, or with the call that removes it; one that was not asked for
FORGOTTEN_SECONDS long is removed. Events that the kernel dropped are not reported.
"""

import ctypes
import os
import select
import struct
import threading
import time
import uuid

import users
from faults import Fault, of_system
from filesystem import entry_of

CREATED, MODIFIED, ATTRIBUTES = 0x100, 0x2, 0x4
MOVED_FROM, MOVED_TO, DELETED, DELETED_SELF = 0x40, 0x80, 0x200, 0x400
MASK = CREATED | MODIFIED | ATTRIBUTES | MOVED_FROM | MOVED_TO | DELETED
IS_DIRECTORY = 0x40000000
NAMES = (
    (CREATED | MOVED_TO, "EVENT_TYPE_CREATE"),
    (MODIFIED, "EVENT_TYPE_WRITE"),
    (DELETED, "EVENT_TYPE_REMOVE"),
    (MOVED_FROM, "EVENT_TYPE_RENAME"),
    (ATTRIBUTES, "EVENT_TYPE_CHMOD"),
)
WATCHERS_MAX = 100
EVENTS_MAX = 100_000
FORGOTTEN_SECONDS = 600
library = ctypes.CDLL(None, use_errno=True)


class Watch:
    def __init__(self, request, user):
        self.path = users.resolve(request.get("path", ""), user)
        self._is_recursive = bool(request.get("recursive"))
        self._has_entries = bool(request.get("includeEntry"))
        try:
            if not os.path.isdir(self.path):
                os.stat(self.path)
                raise Fault("invalid_argument", f"path is not a directory: {self.path}")
        except OSError as error:
            raise of_system(error, self.path) from None
        self._number = library.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._number < 0:
            raise Fault("resource_exhausted", "no more directories can be watched")
        self._directories = {}
        try:
            self._add(self.path)
        except BaseException:
            self.close()
            raise

    def _add(self, directory):
        added = library.inotify_add_watch(self._number, os.fsencode(directory), MASK)
        if added < 0:
            error = ctypes.get_errno()
            if directory != self.path:
                return
            raise of_system(OSError(error, os.strerror(error)), directory)
        self._directories[added] = directory
        if self._is_recursive:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        self._add(entry.path)

    def take(self, seconds):
        """The events of the next read; an empty list after that time."""
        ready, _, _ = select.select([self._number], [], [], seconds)
        return self._read() if ready else []

    def _read(self):
        try:
            data = os.read(self._number, 64 * 1024)
        except BlockingIOError:
            return []
        events = []
        at = 0
        while at < len(data):
            watch, mask, _, length = struct.unpack_from("iIII", data, at)
            name = os.fsdecode(data[at + 16 : at + 16 + length].rstrip(b"\0"))
            at += 16 + length
            directory = self._directories.get(watch)
            if directory is None or name == "":
                continue
            path = os.path.join(directory, name)
            if mask & IS_DIRECTORY and mask & (CREATED | MOVED_TO) and self._is_recursive:
                try:
                    self._add(path)
                except (OSError, Fault):
                    pass
            events.extend(self._events_of(path, mask))
        return events

    def _events_of(self, path, mask):
        for bits, kind in NAMES:
            if mask & bits:
                event = {"name": os.path.relpath(path, self.path), "type": kind}
                if self._has_entries and kind not in ("EVENT_TYPE_REMOVE", "EVENT_TYPE_RENAME"):
                    try:
                        event["entry"] = entry_of(path)
                    except OSError:
                        pass
                yield event

    def close(self):
        os.close(self._number)


class Watchers:
    """Watches that are asked for their events."""

    def __init__(self):
        self._lock = threading.Lock()
        self._known = {}

    def create(self, request, user):
        self._forget()
        with self._lock:
            if len(self._known) >= WATCHERS_MAX:
                raise Fault("resource_exhausted", f"{WATCHERS_MAX} directories are watched already")
        watch = Watch(request, user)
        name = uuid.uuid4().hex
        with self._lock:
            self._known[name] = [watch, time.monotonic()]
        return {"watcherId": name}

    def events(self, request, _user):
        with self._lock:
            known = self._known.get(request.get("watcherId"))
            if known is None:
                raise Fault("not_found", f"watcher {request.get('watcherId')} does not exist")
            known[1] = time.monotonic()
            events = []
            while len(events) < EVENTS_MAX:
                more = known[0].take(0)
                if not more:
                    break
                events.extend(more)
            return {"events": events}

    def remove(self, request, _user):
        with self._lock:
            known = self._known.pop(request.get("watcherId"), None)
        if known is None:
            raise Fault("not_found", f"watcher {request.get('watcherId')} does not exist")
        known[0].close()
        return {}

    def _forget(self):
        with self._lock:
            now = time.monotonic()
            for name in [name for name, (_, at) in self._known.items() if now - at > FORGOTTEN_SECONDS]:
                self._known.pop(name)[0].close()
