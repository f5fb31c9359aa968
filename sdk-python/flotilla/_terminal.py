"""Terminals in machines, over WebSocket. They need the package ``websockets``.

Always: the key is sent in a header, never in the address.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from types import TracebackType
from typing import Any, AsyncIterator, Coroutine, Dict, Iterator, Optional, Type, TypeVar

from ._error import Unreachable

T = TypeVar("T")
OPEN_SECONDS = 120.0


class AsyncTerminal:
    """A program in a terminal: iterate over what it prints, ``send`` what is typed."""

    def __init__(self, url: str, headers: Dict[str, str], call: str) -> None:
        self._url = url
        self._headers = headers
        self._call = call
        self._socket: Any = None
        #: The program's exit code, once it has ended.
        self.exit_code: Optional[int] = None

    async def __aenter__(self) -> AsyncTerminal:
        import websockets

        connect: Any = getattr(websockets, "connect")
        # The name of the parameter differs between releases.
        named = inspect.signature(connect.__init__).parameters
        name = "additional_headers" if "additional_headers" in named else "extra_headers"
        options: Dict[str, Any] = {name: self._headers, "max_size": None, "open_timeout": OPEN_SECONDS}
        try:
            self._socket = await connect(self._url, **options)
        except Exception as error:
            text = f"the terminal could not be opened: {error}"
            raise Unreachable(text, status=0, code="unreachable", call=self._call) from error
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self._socket.close()

    async def send(self, data: bytes) -> None:
        await self._socket.send(data)

    async def resize(self, cols: int, rows: int) -> None:
        await self._socket.send(json.dumps({"type": "resize", "cols": cols, "rows": rows}))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for message in self._socket:
            if isinstance(message, bytes):
                yield message
                continue
            facts = json.loads(message)
            if facts.get("type") == "exit":
                self.exit_code = int(facts["code"])
                return


class Terminal:
    """As ``AsyncTerminal``, for callers that wait: it has an event loop in its own thread."""

    def __init__(self, url: str, headers: Dict[str, str], call: str) -> None:
        self._terminal = AsyncTerminal(url, headers, call)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def exit_code(self) -> Optional[int]:
        return self._terminal.exit_code

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Terminal:
        self._thread.start()
        try:
            self._do(self._terminal.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        try:
            self._do(self._terminal.__aexit__(kind, error, trace))
        finally:
            self._end()

    def send(self, data: bytes) -> None:
        self._do(self._terminal.send(data))

    def resize(self, cols: int, rows: int) -> None:
        self._do(self._terminal.resize(cols, rows))

    def __iter__(self) -> Iterator[bytes]:
        output = self._terminal.__aiter__()

        async def following() -> Optional[bytes]:
            try:
                return await output.__anext__()
            except StopAsyncIteration:
                return None

        while True:
            data = self._do(following())
            if data is None:
                return
            yield data
