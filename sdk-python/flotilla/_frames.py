"""The output of a command, in binary frames: chunks of any size become events.

Always: output is handed out as it arrives; only the last message is collected, bounded.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Iterator, Type, Union

from . import errors
from ._error import FlotillaError, Unreachable

TYPE = "application/vnd.flotilla.exec-frames"
HEAD_BYTES = 8
MESSAGE_BYTES_MAX = 1024 * 1024
STDOUT, STDERR, EXIT, ERROR = 1, 2, 3, 4


@dataclass(frozen=True)
class Stdout:
    """What the command wrote to its standard output."""

    data: bytes


@dataclass(frozen=True)
class Stderr:
    """What the command wrote to its standard error."""

    data: bytes


@dataclass(frozen=True)
class Exit:
    """The command has ended; the last event."""

    code: int


ExecEvent = Union[Stdout, Stderr, Exit]


class FrameReader:
    """Turns chunks into events. ``finish`` says whether the command's end is known."""

    def __init__(self, call: str) -> None:
        self._call = call
        self._head = b""
        self._kind = 0
        self._missing = 0
        self._message = b""
        self._ended = False

    def push(self, chunk: bytes) -> Iterator[ExecEvent]:
        at = 0
        while at < len(chunk):
            if self._missing == 0:
                part = chunk[at : at + HEAD_BYTES - len(self._head)]
                self._head += part
                at += len(part)
                if len(self._head) < HEAD_BYTES:
                    return
                self._kind = self._head[0]
                self._missing = int.from_bytes(self._head[4:], "big")
                self._head = b""
                self._message = b""
                if self._kind in (EXIT, ERROR) and self._missing > MESSAGE_BYTES_MAX:
                    raise self._failure("unreachable", f"a message of {self._missing} bytes")
                continue
            data = chunk[at : at + self._missing]
            at += len(data)
            self._missing -= len(data)
            if self._kind == STDOUT:
                yield Stdout(data)
            elif self._kind == STDERR:
                yield Stderr(data)
            elif self._kind in (EXIT, ERROR):
                self._message += data
                if self._missing == 0:
                    yield self._last()

    def finish(self) -> None:
        if not self._ended:
            text = "the stream ended before the command's exit; its result is unknown"
            raise self._failure("unreachable", text)

    def _last(self) -> Exit:
        facts = json.loads(self._message)
        if self._kind == ERROR:
            raise self._failure(str(facts.get("code", "exec_failed")), str(facts.get("message")))
        self._ended = True
        return Exit(int(facts["exitCode"]))

    def _failure(self, code: str, text: str) -> FlotillaError:
        kind: Type[FlotillaError] = errors.BY_CODE.get(code, FlotillaError)
        if code == "unreachable":
            kind = Unreachable
        advice = errors.ADVICE.get(code)
        return kind(text, status=200, code=code, call=self._call, advice=advice)
