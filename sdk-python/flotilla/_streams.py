"""Answers that are read as they arrive: files, logs and the output of commands.

Always: nothing is fetched ahead of the reader, and closing a stream ends its call, and with it
the command.
"""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any, AsyncIterator, Dict, Iterator, Optional, Type

import httpx

from ._error import Aborted, NoAnswer, Unreachable
from ._frames import ExecEvent, FrameReader


def broken(error: Exception, call: str) -> NoAnswer:
    """The error of an answer that broke off while it was read."""
    if isinstance(error, httpx.StreamError):
        return Aborted("the stream was closed", status=0, code="aborted", call=call)
    text = f"the connection broke while the answer was read: {error}"
    return Unreachable(text, status=0, code="unreachable", call=call)


class ByteStream:
    """The bytes of an answer: iterate, or ``read()`` all of them. Close it, or use ``with``."""

    def __init__(self, response: httpx.Response, call: str) -> None:
        self._response = response
        self._call = call

    @property
    def headers(self) -> httpx.Headers:
        return self._response.headers

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._response.iter_bytes()
        except (httpx.TransportError, httpx.StreamError) as error:
            raise broken(error, self._call) from error
        finally:
            self.close()

    def read(self) -> bytes:
        return b"".join(self)

    def records(self) -> Iterator[Dict[str, Any]]:
        """The JSON of each event, such as the lines of a log with ``format="json"``."""
        rest = b""
        for chunk in self:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line.startswith(b"data:"):
                    yield json.loads(line[5:])

    def close(self) -> None:
        self._response.close()

    def __enter__(self) -> ByteStream:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()


class ExecStream:
    """The events of a command; closing it before its end ends the command."""

    def __init__(self, stream: ByteStream, call: str) -> None:
        self._stream = stream
        self._call = call

    def __iter__(self) -> Iterator[ExecEvent]:
        frames = FrameReader(self._call)
        for chunk in self._stream:
            yield from frames.push(chunk)
        frames.finish()

    def close(self) -> None:
        self._stream.close()

    def __enter__(self) -> ExecStream:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()


class AsyncByteStream:
    """As ``ByteStream``, for callers that await."""

    def __init__(self, response: httpx.Response, call: str) -> None:
        self._response = response
        self._call = call

    @property
    def headers(self) -> httpx.Headers:
        return self._response.headers

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.aiter_bytes():
                yield chunk
        except (httpx.TransportError, httpx.StreamError) as error:
            raise broken(error, self._call) from error
        finally:
            await self.aclose()

    async def read(self) -> bytes:
        return b"".join([chunk async for chunk in self])

    async def records(self) -> AsyncIterator[Dict[str, Any]]:
        rest = b""
        async for chunk in self:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line.startswith(b"data:"):
                    yield json.loads(line[5:])

    async def aclose(self) -> None:
        await self._response.aclose()

    async def __aenter__(self) -> AsyncByteStream:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self.aclose()


class AsyncExecStream:
    """As ``ExecStream``, for callers that await."""

    def __init__(self, stream: AsyncByteStream, call: str) -> None:
        self._stream = stream
        self._call = call

    async def __aiter__(self) -> AsyncIterator[ExecEvent]:
        frames = FrameReader(self._call)
        async for chunk in self._stream:
            for event in frames.push(chunk):
                yield event
        frames.finish()

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> AsyncExecStream:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self.aclose()
