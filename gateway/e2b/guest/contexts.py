"""The code interpreter: contexts, each a process that keeps its variables, and executions in them.

Always: executions of one context run one after the other. One whose caller goes away is interrupted, and
its context is ended if that does not help within INTERRUPT_SECONDS. A context whose process has ended gets
a new one at the next execution, and the caller of the one before an error.
"""

import codecs
import json
import os
import queue
import select
import shutil
import signal
import subprocess
import threading
import time
import uuid

import users
from faults import Fault

HERE = os.path.dirname(os.path.abspath(__file__))
LANGUAGES = {
    **{"python": "python", "python3": "python"},
    **{"javascript": "javascript", "js": "javascript", "node": "javascript"},
}
PROGRAMS = {
    "python": ["python3", "-B", os.path.join(HERE, "python-kernel.py")],
    "javascript": ["node", "--no-warnings", os.path.join(HERE, "javascript-kernel.mjs")],
}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MARK = b"\0end\0"
KEEP_ALIVE_SECONDS = 5
LOOK_SECONDS = 0.5
INTERRUPT_SECONDS = 5
CONTEXTS_MAX = 100


def environment_of(user, common, own):
    return {
        "PATH": PATH,
        "HOME": user.pw_dir,
        "USER": user.pw_name,
        "LOGNAME": user.pw_name,
        **{str(name): str(value) for name, value in common.items()},
        **{str(name): str(value) for name, value in own.items()},
    }


class Context:
    def __init__(self, language, cwd, environment):
        self.id = str(uuid.uuid4())
        self.language = language
        self.cwd = cwd
        self.lock = threading.Lock()
        self._environment = environment
        self._child = None
        self._events = queue.Queue()

    def view(self):
        return {"id": self.id, "language": self.language, "cwd": self.cwd}

    def end(self):
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()

    def begin(self, code, environment):
        """The events of an execution, as a queue."""
        if self._child is None or self._child.poll() is not None:
            self._start()
        self._events.queue.clear()
        line = json.dumps({"code": code, "env": environment or {}}) + "\n"
        self._requests.write(line.encode())
        self._requests.flush()
        return self._events

    def interrupt(self):
        if self._child is not None:
            self._child.send_signal(signal.SIGINT)

    def _start(self):
        program = PROGRAMS[self.language]
        user = users.of("")
        environment = environment_of(user, self._environment(), {"MPLBACKEND": "Agg", "PYTHONUNBUFFERED": "1"})
        if shutil.which(program[0], path=environment["PATH"]) is None:
            raise Fault("invalid_argument", f"the image has no {program[0]}, which runs {self.language}")
        request_reader, request_writer = os.pipe()
        answer_reader, answer_writer = os.pipe()

        def place():
            # Over whatever has these numbers: the copies first.
            first, second = os.dup(request_reader), os.dup(answer_writer)
            high = [os.dup2(first, 30), os.dup2(second, 31)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)
            os.closerange(5, 1024)

        as_user = {}
        if os.getuid() == 0 and user.pw_uid != 0:
            groups = os.getgrouplist(user.pw_name, user.pw_gid)
            as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": groups}
        self._child = subprocess.Popen(
            program,
            cwd=self.cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            close_fds=False,
            preexec_fn=place,
            bufsize=0,
            **as_user,
        )
        os.close(request_reader)
        os.close(answer_writer)
        self._requests = os.fdopen(request_writer, "wb")
        self._events = queue.Queue()
        marks = (threading.Semaphore(0), threading.Semaphore(0))
        for pipe, kind, mark in ((self._child.stdout, "stdout", marks[0]), (self._child.stderr, "stderr", marks[1])):
            threading.Thread(target=read_output, args=(pipe, kind, mark, self._events), daemon=True).start()
        answers = os.fdopen(answer_reader, "r", encoding="utf-8")
        threading.Thread(target=read_answers, args=(answers, marks, self._events), daemon=True).start()


def read_output(pipe, kind, mark, events):
    """What programs of the code write; all of a piece's is there before its end is reported."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = b""
    while True:
        data = pipe.read(64 * 1024)
        if not data:
            mark.release()
            return
        rest += data
        while MARK in rest:
            before, _, rest = rest.partition(MARK)
            if before:
                events.put({"type": kind, "text": decoder.decode(before)})
            mark.release()
        # A mark may be in two reads.
        kept = max((size for size in range(1, len(MARK)) if rest.endswith(MARK[:size])), default=0)
        whole, rest = rest[: len(rest) - kept], rest[len(rest) - kept :]
        if whole:
            events.put({"type": kind, "text": decoder.decode(whole)})


def read_answers(answers, marks, events):
    for line in answers:
        event = json.loads(line)
        if event["type"] == "number_of_executions":
            for mark in marks:
                mark.acquire(timeout=1)
        events.put(event)
    events.put(None)


class CodeContexts:
    def __init__(self, environment):
        self._environment = environment
        self._lock = threading.Lock()
        self._known = {}
        self._defaults = {}

    def answer(self, request):
        try:
            self._route(request)
        except Fault as fault:
            request.answer(fault.status, "text/plain; charset=utf-8", fault.message.encode())
        except (ValueError, KeyError, TypeError) as error:
            request.answer(400, "text/plain; charset=utf-8", str(error).encode())

    def _route(self, request):
        parts = request.path.strip("/").split("/")
        method = request.method
        if (method, parts) == ("GET", ["health"]):
            return request.answer_json(200, "OK")
        if (method, parts) == ("POST", ["execute"]):
            return self._execute(request, json.loads(request.body()))
        if (method, parts) == ("GET", ["contexts"]):
            return request.answer_json(200, [each.view() for each in list(self._known.values())])
        if (method, parts) == ("POST", ["contexts"]):
            body = json.loads(request.body() or b"{}")
            return request.answer_json(200, self._create(body.get("language"), body.get("cwd")).view())
        if method == "DELETE" and len(parts) == 2 and parts[0] == "contexts":
            self._find(parts[1]).end()
            with self._lock:
                self._known.pop(parts[1], None)
                self._defaults = {name: each for name, each in self._defaults.items() if each.id != parts[1]}
            return request.answer_json(200, None)
        if method == "POST" and len(parts) == 3 and (parts[0], parts[2]) == ("contexts", "restart"):
            self._find(parts[1]).end()
            return request.answer_json(200, None)
        raise Fault("unimplemented", f"{method} {request.path} is not implemented")

    def _create(self, language, cwd):
        known = LANGUAGES.get((language or "python").lower())
        if known is None:
            raise Fault("unimplemented", f"the language {language} is not implemented; python and javascript are")
        user = users.of("")
        place = users.resolve(cwd or user.pw_dir, user)
        if not os.path.isdir(place):
            raise Fault("invalid_argument", f"cwd '{place}' does not exist")
        context = Context(known, place, self._environment)
        with self._lock:
            if len(self._known) >= CONTEXTS_MAX:
                raise Fault("resource_exhausted", f"{CONTEXTS_MAX} contexts are there already")
            self._known[context.id] = context
        return context

    def _find(self, name):
        found = self._known.get(name)
        if found is None:
            raise Fault("not_found", f"Context {name} not found")
        return found

    def _context_of(self, body):
        name, language = body.get("context_id"), body.get("language")
        if name is not None and language is not None:
            raise Fault("invalid_argument", "Only one of context_id or language can be provided")
        if name is not None:
            return self._find(name)
        known = LANGUAGES.get((language or "python").lower(), language)
        if known not in self._defaults:
            self._defaults[known] = self._create(known, None)
        return self._defaults[known]

    def _execute(self, request, body):
        context = self._context_of(body)
        with context.lock:
            events = context.begin(body["code"], body.get("env_vars"))
            request.begin_chunks(200, "application/json")
            try:
                self._pass(request, events)
            except (OSError, ConnectionError):
                self._stop(context, events)
                raise

    def _pass(self, request, events):
        silent = 0
        while True:
            try:
                event = events.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                silent += LOOK_SECONDS
                readable, _, _ = select.select([request.connection], [], [], 0)
                if readable and request.connection.recv(1) == b"":
                    raise ConnectionError("the caller has gone") from None
                if silent >= KEEP_ALIVE_SECONDS:
                    silent = 0
                    send(request, {"type": "keepalive"})
                continue
            silent = 0
            if event is None:
                text = "the process of the context ended"
                send(request, {"type": "error", "name": "UnexpectedEndOfExecution", "value": text, "traceback": ""})
            elif event["type"] != "done":
                if event["type"] in ("stdout", "stderr"):
                    event["timestamp"] = time.time_ns() // 1000
                send(request, event)
                continue
            send(request, {"type": "end_of_execution"})
            return request.end_chunks()

    def _stop(self, context, events):
        """Interrupts what runs, for the next caller."""
        context.interrupt()
        until = time.monotonic() + INTERRUPT_SECONDS
        while time.monotonic() < until:
            try:
                event = events.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                continue
            if event is None or event["type"] == "done":
                return
        context.end()


def send(request, event):
    request.chunk(json.dumps(event).encode() + b"\n")
