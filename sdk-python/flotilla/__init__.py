"""Client of Flotilla's API.

``Flotilla`` waits for its answers and ``AsyncFlotilla`` is awaited; ``flotilla.types`` has the
shapes of requests and answers, ``flotilla.errors`` an exception for each code.
"""

from . import errors, types
from ._frames import ExecEvent, Exit, Stderr, Stdout
from ._streams import AsyncByteStream, AsyncExecStream, ByteStream, ExecStream
from ._terminal import AsyncTerminal, Terminal
from .client import AsyncFlotilla, Flotilla
from .errors import FlotillaError

__all__ = [
    "AsyncByteStream",
    "AsyncExecStream",
    "AsyncFlotilla",
    "AsyncTerminal",
    "ByteStream",
    "ExecEvent",
    "ExecStream",
    "Exit",
    "Flotilla",
    "FlotillaError",
    "Stderr",
    "Stdout",
    "Terminal",
    "errors",
    "types",
]
