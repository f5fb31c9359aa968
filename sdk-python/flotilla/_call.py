"""One HTTP call as data, and what decides about it; without any input or output.

Always:
- A path parameter cannot lead to another resource.
- GET and HEAD are retried on answers that say "not now". A POST is retried only with an
  idempotency key, which makes it happen once; then also when its answer was lost.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import IO, Any, AsyncIterable, Dict, Iterable, List, Mapping, Optional, Tuple, Union
from urllib.parse import quote

from . import errors
from ._error import FlotillaError

Body = Union[bytes, bytearray, str, IO[bytes], Iterable[bytes]]
AsyncBody = Union[bytes, bytearray, str, IO[bytes], Iterable[bytes], AsyncIterable[bytes]]

RETRIED_STATUSES = (429, 502, 503, 504)
RETRY_PAUSE_FIRST = 0.2
#: A longer pause is not waited for: the caller gets the refusal instead of an unexpected delay.
RETRY_PAUSE_MAX = 10.0
#: A refusal that took longer is not retried.
SLOW = 10.0
#: More of a refusal is not read.
REFUSAL_BYTES_MAX = 64 * 1024
PIECE_BYTES = 64 * 1024


@dataclass(frozen=True)
class Options:
    """What every method takes."""

    timeout: Optional[float] = None
    headers: Optional[Mapping[str, str]] = None
    idempotency_key: Optional[str] = None


@dataclass(frozen=True)
class Call:
    """One call, as the methods describe it."""

    method: str
    path: str
    json: Any = None
    content: Any = None
    query: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"


def segment(value: object) -> str:
    """Escapes a path parameter. Raises a ValueError for one that would change what is named."""
    text = str(value)
    if text in ("", ".", ".."):
        raise ValueError(f'"{text}" is not an identifier')
    return quote(text, safe="")


def rest(value: str) -> str:
    """Escapes a parameter that is the rest of the path. Slashes are kept."""
    return "/".join(segment(part) if part else "" for part in value.lstrip("/").split("/"))


def parameters(query: Mapping[str, Any]) -> List[Tuple[str, str]]:
    """The query without what is None; lists are repeated."""
    found: List[Tuple[str, str]] = []
    for name, value in query.items():
        for item in value if isinstance(value, (list, tuple)) else [value]:
            if item is not None:
                text = str(item).lower() if isinstance(item, bool) else str(item)
                found.append((name, text))
    return found


def headers_of(call: Call, options: Options, key: Optional[str]) -> Dict[str, str]:
    # Streams are passed on byte for byte.
    headers = {"accept": "application/problem+json, */*", "accept-encoding": "identity"}
    if call.method == "POST":
        # Signs of life while a start or a command takes long.
        headers["prefer"] = "processing"
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    if options.idempotency_key is not None:
        headers["idempotency-key"] = options.idempotency_key
    if call.json is not None:
        headers["content-type"] = "application/json"
    elif call.content is not None:
        headers["content-type"] = "application/octet-stream"
    headers.update({name.lower(): value for name, value in (options.headers or {}).items()})
    return headers


def pieces(body: Body) -> Union[bytes, Iterable[bytes]]:
    """A body as httpx takes it. A file is read in pieces, never whole."""
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, (bytes, bytearray)):
        return bytes(body)
    read: Any = getattr(body, "read", None)
    return body if read is None else iter(lambda: bytes(read(PIECE_BYTES)), b"")


def may_retry(call: Call, options: Options) -> bool:
    if call.method in ("GET", "HEAD"):
        return True
    is_whole = call.content is None or isinstance(call.content, (bytes, bytearray, str))
    return call.method == "POST" and options.idempotency_key is not None and is_whole


def pause_before_retry(
    status: int, headers: Mapping[str, str], tries: int, took: float
) -> Optional[float]:
    """How long to wait before the call is sent again; None: it is not."""
    in_progress = headers.get("x-error-code") == "idempotency_in_progress"
    if (status not in RETRIED_STATUSES and not in_progress) or took >= SLOW:
        return None
    stated = retry_after(headers)
    pause = RETRY_PAUSE_FIRST * 2.0**tries if stated is None else stated
    return None if pause > RETRY_PAUSE_MAX else pause


def retry_after(headers: Mapping[str, str]) -> Optional[float]:
    """``Retry-After`` in either of its forms, in seconds from the answer's own time."""
    value = headers.get("retry-after", "").strip()
    if value.isdigit():
        return float(value)
    try:
        until = parsedate_to_datetime(value)
        return max(0.0, (until - parsedate_to_datetime(headers.get("date", ""))).total_seconds())
    except (TypeError, ValueError):
        return None


def error_of(status: int, headers: Mapping[str, str], body: bytes, call: str) -> FlotillaError:
    """Reads a refusal in any of its forms: plain text, RFC 9457 or the JSON of key errors."""
    raw = body[:REFUSAL_BYTES_MAX].decode("utf-8", "replace").strip()
    facts: Dict[str, Any] = {}
    if raw.startswith("{"):
        try:
            facts = json.loads(raw)
        except ValueError:
            pass
    stated = facts.get("detail") or facts.get("error") or facts.get("title")
    text = stated if isinstance(stated, str) else raw
    code = headers.get("x-error-code") or facts.get("code")
    if not isinstance(code, str):
        code = "missing_key" if status == 401 else f"http_{status}"
    details = facts.get("details")
    kind = errors.BY_CODE.get(code, FlotillaError)
    return kind(
        text or f"the server answered {status}",
        status=status,
        code=code,
        call=call,
        request_id=headers.get("x-request-id"),
        details=details if isinstance(details, dict) else None,
        advice=errors.ADVICE.get(code),
    )
