"""The clients of Flotilla's API: ``Flotilla`` waits, ``AsyncFlotilla`` is awaited.

Both have one method for each endpoint (_methods.py), and what is here: output of commands as it
arrives, terminals, lists of any length, and context managers that delete what they made.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, AsyncIterator, Callable, Dict, Iterator, List, Mapping, Optional, Type
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx

from . import types as t
from ._call import (
    REFUSAL_BYTES_MAX,
    RETRY_PAUSE_FIRST,
    Call,
    Options,
    error_of,
    headers_of,
    may_retry,
    parameters,
    pause_before_retry,
    pieces,
    segment,
)
from ._error import NoAnswer, TimedOut, Unreachable
from ._frames import TYPE as FRAMES
from ._methods import AsyncMethods, Methods
from ._streams import AsyncByteStream, AsyncExecStream, ByteStream, ExecStream
from ._terminal import AsyncTerminal, Terminal
from .errors import NotFound

DEFAULT_URL = "http://127.0.0.1:8080"
RETRIES = 3
CONNECT_SECONDS = 10.0
PAGE_ITEMS = 100


class _Settings:
    """The address and the key; without them those of FLOTILLA_URL and FLOTILLA_API_KEY."""

    def __init__(
        self, url: Optional[str], api_key: Optional[str], timeout: Optional[float], retries: int
    ) -> None:
        self.url = (url or os.environ.get("FLOTILLA_URL") or DEFAULT_URL).rstrip("/")
        if urlsplit(self.url).scheme not in ("http", "https"):
            raise ValueError(f'"{self.url}" is not an http:// or https:// address')
        self.api_key = api_key or os.environ.get("FLOTILLA_API_KEY")
        if self.api_key is not None and not all("!" <= letter <= "~" for letter in self.api_key):
            raise ValueError("the API key has a character that no header can carry")
        self.timeout = timeout
        self.retries = retries

    def request(self, client: Any, call: Call, options: Options) -> httpx.Request:
        seconds = self.timeout if options.timeout is None else options.timeout
        content: Any = None
        if call.json is not None:
            content = json.dumps(call.json, ensure_ascii=False).encode()
        elif call.content is not None:
            content = call.content if hasattr(call.content, "__aiter__") else pieces(call.content)
        made: httpx.Request = client.build_request(
            call.method,
            self.url + call.path,
            params=parameters(call.query),
            content=content,
            headers=headers_of(call, options, self.api_key),
            timeout=httpx.Timeout(seconds, connect=seconds or CONNECT_SECONDS),
        )
        return made

    def no_answer(self, error: httpx.HTTPError, call: Call) -> NoAnswer:
        if isinstance(error, httpx.TimeoutException):
            text = f"{self.url} did not answer {call.name} in time"
            return TimedOut(text, status=0, code="timeout", call=call.name)
        text = f"{self.url} gave no usable answer to {call.name}: {error}"
        return Unreachable(text, status=0, code="unreachable", call=call.name)

    def terminal(self, machine_id: str, query: Mapping[str, Any]) -> Dict[str, Any]:
        path = f"/v1/machines/{segment(machine_id)}/exec/interactive"
        address = f"ws{self.url[4:]}{path}?{urlencode(parameters(query))}"
        headers = {} if self.api_key is None else {"authorization": f"Bearer {self.api_key}"}
        return {"url": address, "headers": headers, "call": f"GET {path}"}


def _exec_call(machine_id: str, body: t.MachineCommandRequest) -> Call:
    return Call("POST", f"/v1/machines/{segment(machine_id)}/exec/stream", json=body)


_FRAMED = {"accept": f"{FRAMES}, application/problem+json"}


def _answer(response: httpx.Response) -> Any:
    return response.json() if response.content else None


def _next_cursor(headers: httpx.Headers) -> Optional[str]:
    link = httpx.Response(200, headers=headers).links.get("next", {}).get("url", "")
    return next(iter(parse_qs(urlsplit(link).query).get("cursor", [])), None)


class Flotilla(Methods):
    """A client that waits for each answer. Close it, or use ``with``."""

    def __init__(
        self,
        url: Optional[str] = None,
        api_key: Optional[str] = None,
        *,
        timeout: Optional[float] = None,
        retries: int = RETRIES,
        transport: Optional[httpx.BaseTransport] = None,
    ) -> None:
        self._settings = _Settings(url, api_key, timeout, retries)
        self._http = httpx.Client(transport=transport, trust_env=transport is None)

    def _send(self, call: Call, options: Options) -> httpx.Response:
        """The answer, when it has begun. A refusal is raised."""
        retries = self._settings.retries if may_retry(call, options) else 0
        for tries in range(retries + 1):
            began = time.monotonic()
            try:
                request = self._settings.request(self._http, call, options)
                response = self._http.send(request, stream=True)
            except httpx.TransportError as error:
                # The key makes sure that what is sent again is done once.
                if call.method != "POST" or tries >= retries or isinstance(error, httpx.TimeoutException):
                    raise self._settings.no_answer(error, call) from error
                time.sleep(RETRY_PAUSE_FIRST * 2.0**tries)
                continue
            if response.is_success:
                return response
            took = time.monotonic() - began
            pause = pause_before_retry(response.status_code, response.headers, tries, took)
            body = self._refusal(response)
            if pause is None or tries >= retries:
                raise error_of(response.status_code, response.headers, body, call.name)
            time.sleep(pause)
        raise AssertionError("the last try returns or raises")

    @staticmethod
    def _refusal(response: httpx.Response) -> bytes:
        body = b""
        try:
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > REFUSAL_BYTES_MAX:
                    break
        except httpx.TransportError:
            pass
        finally:
            response.close()
        return body

    def _call(self, call: Call, options: Options) -> Any:
        response = self._send(call, options)
        try:
            response.read()
            return _answer(response)
        except httpx.TransportError as error:
            raise self._settings.no_answer(error, call) from error
        finally:
            response.close()

    def _stream(self, call: Call, options: Options) -> ByteStream:
        return ByteStream(self._send(call, options), call.name)

    def stream_exec(
        self, id: str, body: t.MachineCommandRequest, *, timeout: Optional[float] = None
    ) -> ExecStream:
        """Runs a command; iterate over its output as it writes it, and its exit."""
        call = _exec_call(id, body)
        return ExecStream(self._stream(call, Options(timeout, _FRAMED)), call.name)

    def open_terminal(self, id: str, **query: Any) -> Terminal:
        """A terminal in a machine; ``cmd``, ``arg``, ``cols`` and ``rows`` as in the API."""
        return Terminal(**self._settings.terminal(id, query))

    def list_all(self, path: str, **query: Any) -> Iterator[Dict[str, Any]]:
        """All items of a list such as ``/v1/machines``, page by page."""
        cursor: Optional[str] = None
        while True:
            call = Call("GET", path, query={"limit": PAGE_ITEMS, **query, "cursor": cursor})
            response = self._send(call, Options())
            response.read()
            found: List[Dict[str, Any]] = response.json()
            yield from found
            following = _next_cursor(response.headers)
            if following is None or following == cursor:
                return
            cursor = following

    @contextmanager
    def machine(self, body: t.CreateMachineRequest) -> Iterator[t.MachineInfo]:
        """A machine that is deleted at the end of the block."""
        made = self.create_machine(body, idempotency_key=str(uuid.uuid4()))
        with self._removing(lambda: self.delete_machine(made["id"])):
            yield made

    @contextmanager
    def branch(self, id: str, body: t.BranchRequest) -> Iterator[t.MachineInfo]:
        """A branch of a running machine that is deleted at the end of the block."""
        made = self.create_branch(id, body, idempotency_key=str(uuid.uuid4()))
        with self._removing(lambda: self.delete_machine(made["id"])):
            yield made

    @contextmanager
    def app(self, body: t.DeployRequest) -> Iterator[t.AppInfo]:
        """An app that is destroyed at the end of the block."""
        made = self.deploy_app(body, idempotency_key=str(uuid.uuid4()))
        with self._removing(lambda: self.destroy_app(made["name"])):
            yield made

    @contextmanager
    def _removing(self, remove: Callable[[], object]) -> Iterator[None]:
        try:
            yield
        finally:
            try:
                remove()
            except NotFound:
                pass

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Flotilla:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()


class AsyncFlotilla(AsyncMethods):
    """A client whose calls are awaited. Close it, or use ``async with``."""

    def __init__(
        self,
        url: Optional[str] = None,
        api_key: Optional[str] = None,
        *,
        timeout: Optional[float] = None,
        retries: int = RETRIES,
        transport: Optional[httpx.AsyncBaseTransport] = None,
    ) -> None:
        self._settings = _Settings(url, api_key, timeout, retries)
        self._http = httpx.AsyncClient(transport=transport, trust_env=transport is None)

    async def _send(self, call: Call, options: Options) -> httpx.Response:
        """The answer, when it has begun. A refusal is raised."""
        retries = self._settings.retries if may_retry(call, options) else 0
        for tries in range(retries + 1):
            began = time.monotonic()
            try:
                request = self._settings.request(self._http, _awaited(call), options)
                response = await self._http.send(request, stream=True)
            except httpx.TransportError as error:
                if call.method != "POST" or tries >= retries or isinstance(error, httpx.TimeoutException):
                    raise self._settings.no_answer(error, call) from error
                await asyncio.sleep(RETRY_PAUSE_FIRST * 2.0**tries)
                continue
            if response.is_success:
                return response
            took = time.monotonic() - began
            pause = pause_before_retry(response.status_code, response.headers, tries, took)
            body = await self._refusal(response)
            if pause is None or tries >= retries:
                raise error_of(response.status_code, response.headers, body, call.name)
            await asyncio.sleep(pause)
        raise AssertionError("the last try returns or raises")

    @staticmethod
    async def _refusal(response: httpx.Response) -> bytes:
        body = b""
        try:
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > REFUSAL_BYTES_MAX:
                    break
        except httpx.TransportError:
            pass
        finally:
            await response.aclose()
        return body

    async def _call(self, call: Call, options: Options) -> Any:
        response = await self._send(call, options)
        try:
            await response.aread()
            return _answer(response)
        except httpx.TransportError as error:
            raise self._settings.no_answer(error, call) from error
        finally:
            await response.aclose()

    async def _stream(self, call: Call, options: Options) -> AsyncByteStream:
        return AsyncByteStream(await self._send(call, options), call.name)

    async def stream_exec(
        self, id: str, body: t.MachineCommandRequest, *, timeout: Optional[float] = None
    ) -> AsyncExecStream:
        """Runs a command; iterate over its output as it writes it, and its exit."""
        call = _exec_call(id, body)
        return AsyncExecStream(await self._stream(call, Options(timeout, _FRAMED)), call.name)

    def open_terminal(self, id: str, **query: Any) -> AsyncTerminal:
        """A terminal in a machine; ``cmd``, ``arg``, ``cols`` and ``rows`` as in the API."""
        return AsyncTerminal(**self._settings.terminal(id, query))

    async def list_all(self, path: str, **query: Any) -> AsyncIterator[Dict[str, Any]]:
        """All items of a list such as ``/v1/machines``, page by page."""
        cursor: Optional[str] = None
        while True:
            call = Call("GET", path, query={"limit": PAGE_ITEMS, **query, "cursor": cursor})
            response = await self._send(call, Options())
            await response.aread()
            for item in response.json():
                yield item
            following = _next_cursor(response.headers)
            if following is None or following == cursor:
                return
            cursor = following

    @asynccontextmanager
    async def machine(self, body: t.CreateMachineRequest) -> AsyncIterator[t.MachineInfo]:
        """A machine that is deleted at the end of the block."""
        made = await self.create_machine(body, idempotency_key=str(uuid.uuid4()))
        async with self._removing(lambda: self.delete_machine(made["id"])):
            yield made

    @asynccontextmanager
    async def branch(self, id: str, body: t.BranchRequest) -> AsyncIterator[t.MachineInfo]:
        """A branch of a running machine that is deleted at the end of the block."""
        made = await self.create_branch(id, body, idempotency_key=str(uuid.uuid4()))
        async with self._removing(lambda: self.delete_machine(made["id"])):
            yield made

    @asynccontextmanager
    async def app(self, body: t.DeployRequest) -> AsyncIterator[t.AppInfo]:
        """An app that is destroyed at the end of the block."""
        made = await self.deploy_app(body, idempotency_key=str(uuid.uuid4()))
        async with self._removing(lambda: self.destroy_app(made["name"])):
            yield made

    @asynccontextmanager
    async def _removing(self, remove: Callable[[], Any]) -> AsyncIterator[None]:
        try:
            yield
        finally:
            try:
                await remove()
            except NotFound:
                pass

    async def aclose(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> AsyncFlotilla:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self.aclose()


def _awaited(call: Call) -> Call:
    """An async client takes bytes or an async iterable; a file is read in pieces between awaits."""
    content = call.content
    if content is None or isinstance(content, (bytes, bytearray, str)) or hasattr(content, "__aiter__"):
        return call

    async def following() -> AsyncIterator[bytes]:
        for piece in pieces(content):
            yield piece if isinstance(piece, bytes) else bytes(piece)

    return Call(call.method, call.path, call.json, following(), call.query)
