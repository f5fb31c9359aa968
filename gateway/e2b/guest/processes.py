"""The commands and terminals of a sandbox.

Always:
- A command lives until it ends, is killed, or its time is over. The streams that show it come and go.
- Output goes to the streams that are there; without one it is read and dropped. A stream that is not read
  holds the command up once OUTPUT_BYTES_MAX wait.
- A command that has ended can be connected to for KEPT_SECONDS more.

A helper that ends leaves its commands running, without a stream.
"""

import fcntl
import os
import signal
import struct
import subprocess
import termios
import threading
import time
from collections import deque

import users
from faults import Fault

KEPT_SECONDS = 30
OUTPUT_BYTES_MAX = 1024 * 1024
CHUNK_BYTES = 32 * 1024
TERMINAL_CHUNK_BYTES = 16 * 1024
# How long the output of programs that a command left behind is waited for.
LEFT_BEHIND_SECONDS = 1
PROCESSES_MAX = 1000
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SIGNALS = {"SIGNAL_SIGTERM": signal.SIGTERM, "SIGNAL_SIGKILL": signal.SIGKILL, 15: signal.SIGTERM, 9: signal.SIGKILL}


class Stream:
    """What one reader of a command has not read yet."""

    def __init__(self):
        self._changed = threading.Condition()
        self._events = deque()
        self._bytes = 0
        self._is_closed = False

    def put(self, event, size=0):
        with self._changed:
            while self._bytes > OUTPUT_BYTES_MAX and not self._is_closed:
                self._changed.wait()
            if self._is_closed:
                return
            self._events.append((event, size))
            self._bytes += size
            self._changed.notify_all()

    def take(self, seconds):
        """The next event; None after that time."""
        with self._changed:
            if not self._events:
                self._changed.wait(seconds)
            if not self._events:
                return None
            event, size = self._events.popleft()
            self._bytes -= size
            self._changed.notify_all()
            return event

    def close(self):
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


class Process:
    def __init__(self, config, tag, child, terminal):
        self.config = config
        self.tag = tag
        self.pid = child.pid
        self.has_ended = False
        self.is_late = False
        self._child = child
        self._terminal = terminal
        self._lock = threading.Lock()
        self._streams = []
        self._end = None

    def attach(self):
        """A stream of what it writes from now on."""
        stream = Stream()
        with self._lock:
            if self._end is None:
                self._streams.append(stream)
            else:
                stream.put(self._end)
        return stream

    def detach(self, stream):
        stream.close()
        with self._lock:
            if stream in self._streams:
                self._streams.remove(stream)

    def begin(self, on_end):
        """Reads its output until it ends."""
        readers = []
        if self._terminal is not None:
            readers.append(self._reader(self._terminal, "pty", TERMINAL_CHUNK_BYTES))
        else:
            readers.append(self._reader(self._child.stdout.fileno(), "stdout", CHUNK_BYTES))
            readers.append(self._reader(self._child.stderr.fileno(), "stderr", CHUNK_BYTES))
        threading.Thread(target=self._wait, args=(readers, on_end), daemon=True).start()

    def _reader(self, number, kind, size):
        def read():
            while True:
                try:
                    data = os.read(number, size)
                except OSError:
                    # A terminal whose last program has ended.
                    return
                if not data:
                    return
                self._publish((kind, data), len(data))

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        return thread

    def _publish(self, event, size=0):
        with self._lock:
            streams = list(self._streams)
        for stream in streams:
            stream.put(event, size)

    def _wait(self, readers, on_end):
        code = self._child.wait()
        until = time.monotonic() + LEFT_BEHIND_SECONDS
        for reader in readers:
            reader.join(max(0, until - time.monotonic()))
        with self._lock:
            self._end = ("end", code)
            self.has_ended = True
            streams = list(self._streams)
        for stream in streams:
            stream.put(self._end)
        on_end(self)

    def signal(self, number):
        if not self.has_ended:
            self._child.send_signal(number)

    def end_late(self):
        """Its time is over: it ends with what it has started."""
        if self.has_ended:
            return
        self.is_late = True
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def write(self, data, is_terminal):
        if is_terminal != (self._terminal is not None):
            raise Fault("failed_precondition", "it has a terminal" if self._terminal is not None else "it has no terminal")
        if self._terminal is not None:
            return write_all(self._terminal, data)
        if self._child.stdin is None or self._child.stdin.closed:
            raise Fault("internal", "the standard input of the process is not open")
        try:
            write_all(self._child.stdin.fileno(), data)
        except BrokenPipeError:
            raise Fault("internal", "the process reads no more of its standard input") from None

    def close_input(self):
        if self._terminal is not None:
            raise Fault("failed_precondition", "the input of a terminal cannot be closed; send it the character 4")
        if self._child.stdin is not None and not self._child.stdin.closed:
            self._child.stdin.close()

    def resize(self, cols, rows):
        if self._terminal is None:
            raise Fault("failed_precondition", "the process has no terminal")
        set_size(self._terminal, cols, rows)

    def release(self):
        """Closes what is open of it, once it cannot be connected to."""
        if self._terminal is not None:
            os.close(self._terminal)
            self._terminal = None
        for pipe in (self._child.stdin, self._child.stdout, self._child.stderr):
            if pipe is not None and not pipe.closed:
                try:
                    pipe.close()
                except OSError:
                    pass


class Processes:
    def __init__(self, environment):
        self._environment = environment
        self._lock = threading.Lock()
        self._known = {}

    def start(self, request, user):
        """A process whose stream is attached and whose output is not read yet."""
        config = request.get("process") or {}
        terminal = (request.get("pty") or {}).get("size") if request.get("pty") is not None else None
        has_terminal = request.get("pty") is not None
        args = [config.get("cmd", ""), *config.get("args", [])]
        cwd = users.resolve(config["cwd"], user) if config.get("cwd") else user.pw_dir
        if not os.path.isdir(cwd):
            raise Fault("invalid_argument", f"cwd '{cwd}' does not exist")
        if len(self._known) >= PROCESSES_MAX:
            raise Fault("resource_exhausted", f"{PROCESSES_MAX} processes run already")
        environment = environment_of(user, self._environment, config.get("envs") or {})
        master, slave = os.openpty() if has_terminal else (None, None)
        try:
            if has_terminal:
                set_size(master, *size_of(terminal))
            child = spawn(args, cwd, environment, user, slave, request.get("stdin", True))
        except BaseException:
            if has_terminal:
                os.close(master)
            raise
        finally:
            if has_terminal:
                os.close(slave)
        process = Process(config, request.get("tag"), child, master)
        with self._lock:
            self._known[process.pid] = process
        return process

    def begin(self, process):
        process.begin(self._keep_for_a_while)

    def _keep_for_a_while(self, process):
        def forget():
            with self._lock:
                if self._known.get(process.pid) is process:
                    del self._known[process.pid]
            process.release()

        timer = threading.Timer(KEPT_SECONDS, forget)
        timer.daemon = True
        timer.start()

    def find(self, selector):
        selector = selector or {}
        with self._lock:
            if "pid" in selector:
                found = self._known.get(int(selector["pid"]))
                if found is None:
                    raise Fault("not_found", f"process with pid {selector['pid']} not found")
                return found
            for each in self._known.values():
                if each.tag is not None and each.tag == selector.get("tag"):
                    return each
        raise Fault("not_found", f"process with tag {selector.get('tag')} not found")

    def list(self):
        with self._lock:
            running = [each for each in self._known.values() if not each.has_ended]
        return [
            {"config": each.config, "pid": each.pid, **({} if each.tag is None else {"tag": each.tag})} for each in running
        ]


def environment_of(user, common, own):
    return {
        "PATH": PATH,
        "HOME": user.pw_dir,
        "USER": user.pw_name,
        "LOGNAME": user.pw_name,
        **{str(name): str(value) for name, value in common.items()},
        **{str(name): str(value) for name, value in own.items()},
    }


def spawn(args, cwd, environment, user, slave, has_input):
    def control():
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    other = {"stdin": subprocess.PIPE if has_input else subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    streams = other if slave is None else {"stdin": slave, "stdout": slave, "stderr": slave, "preexec_fn": control}
    as_user = {}
    if os.getuid() == 0 and user.pw_uid != 0:
        groups = os.getgrouplist(user.pw_name, user.pw_gid)
        as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": groups}
    try:
        if slave is not None:
            os.fchown(slave, user.pw_uid, -1) if os.getuid() == 0 else None
        return subprocess.Popen(args, cwd=cwd, env=environment, start_new_session=True, bufsize=0, **streams, **as_user)
    except (OSError, ValueError) as error:
        raise Fault("invalid_argument", f"error starting process '{args[0][:200]}': {error}") from None


def set_size(terminal, cols, rows):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))


def size_of(size):
    size = size or {}
    return (min(int(size.get("cols", 80)), 65535) or 80, min(int(size.get("rows", 24)), 65535) or 24)


def write_all(number, data):
    view = memoryview(data)
    while view:
        view = view[os.write(number, view) :]
