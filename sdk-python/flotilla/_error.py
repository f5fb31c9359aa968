"""The error of every call that fails. Each code of the API has its own class in errors.py."""

from __future__ import annotations

from typing import Any, Dict, Optional


class FlotillaError(Exception):
    """A call that was refused, or that got no answer.

    ``code`` is for programs and ``text`` is the server's sentence for people; ``status`` is 0
    when there was no answer.
    """

    def __init__(
        self,
        text: str,
        *,
        status: int,
        code: str,
        call: str,
        request_id: Optional[str] = None,
        details: Optional[Dict[str, Any]] = None,
        advice: Optional[str] = None,
    ) -> None:
        super().__init__(text if request_id is None else f"{text} [request id: {request_id}]")
        self.text = text
        self.status = status
        self.code = code
        #: The call, such as ``POST /v1/machines``.
        self.call = call
        #: The call's id in the server's log.
        self.request_id = request_id
        #: What the refusal says to programs: the field, limit, resource or call that it is about.
        self.details: Dict[str, Any] = details or {}
        #: What the caller of any call with this code can do.
        self.advice = advice


class NoAnswer(FlotillaError):
    """There was no answer, or it broke off; the call may have been done."""


class Unreachable(NoAnswer):
    """Nothing listens at the address, or the connection broke."""


class TimedOut(NoAnswer):
    """The answer did not begin in time."""


class Aborted(NoAnswer):
    """What was read was closed before its end."""
