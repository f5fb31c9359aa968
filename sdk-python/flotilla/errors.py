"""Printed by scripts/generate-python.ts from the contract; not edited by hand.

Change contract/src and run `npm run golden`.
"""

from __future__ import annotations

from typing import Dict, Type

from ._error import Aborted, FlotillaError, NoAnswer, TimedOut, Unreachable

class InvalidJson(FlotillaError):
    """The body is not JSON."""


class InvalidRequest(FlotillaError):
    """The request is well formed but its values are invalid."""


class MissingKey(FlotillaError):
    """No API key was sent."""


class UnknownKey(FlotillaError):
    """The API key does not exist or was revoked."""


class ExpiredKey(FlotillaError):
    """The API key has expired."""


class PaymentRequired(FlotillaError):
    """The tenant is suspended or its budget is used up."""


class MissingScope(FlotillaError):
    """The API key lacks a scope that the endpoint needs."""


class NotOwner(FlotillaError):
    """The token in the body is not that of the owner."""


class NotFound(FlotillaError):
    """The resource does not exist, or is another tenant's."""


class MethodNotAllowed(FlotillaError):
    """The path exists, but not with this method."""


class BodyTooSlow(FlotillaError):
    """The request, or its body, arrived too slowly."""


class Conflict(FlotillaError):
    """The resource's state or name does not allow this."""


class LinkVersion(FlotillaError):
    """The node's release and the server's do not work together."""


class NameTaken(FlotillaError):
    """Another resource of the tenant has this name."""


class IdempotencyInProgress(FlotillaError):
    """The first request with this key still runs."""


class BodyTooLarge(FlotillaError):
    """The body is larger than the endpoint accepts."""


class UnsupportedEncoding(FlotillaError):
    """The body is sent compressed or encoded."""


class RangeNotSatisfiable(FlotillaError):
    """The range lies outside the file."""


class InvalidBody(FlotillaError):
    """The JSON body or a parameter does not fit the schema."""


class IdempotencyMismatch(FlotillaError):
    """The idempotency key was used with another body."""


class QuotaExceeded(FlotillaError):
    """A ceiling of the tenant's plan would be exceeded."""


class NoCapacity(FlotillaError):
    """No node has room for the machine now."""


class ImageNotFound(FlotillaError):
    """The registry, or the node, has no such image."""


class ImageRefused(FlotillaError):
    """The image's registry denies access to it."""


class ImageNotAllowed(FlotillaError):
    """Images of this registry are not allowed here."""


class ImageWrongPlatform(FlotillaError):
    """The image is made for other processors or systems."""


class ImageNotCached(FlotillaError):
    """The machine's network is blocked, and its node does not have the image."""


class RateLimited(FlotillaError):
    """Too many requests, or too many at the same time."""


class Internal(FlotillaError):
    """A bug of the server; its log has the request id."""


class NotImplemented(FlotillaError):
    """Declared, but not served yet."""


class GuestUnreachable(FlotillaError):
    """The machine's agent does not answer."""


class Unavailable(FlotillaError):
    """A part that the request needs does not answer now."""


class StartFailed(FlotillaError):
    """The machine could not be started; the text says why."""


class NoSpace(FlotillaError):
    """The disk has no room left."""


BY_CODE: Dict[str, Type[FlotillaError]] = {
    "invalid_json": InvalidJson,
    "invalid_request": InvalidRequest,
    "missing_key": MissingKey,
    "unknown_key": UnknownKey,
    "expired_key": ExpiredKey,
    "payment_required": PaymentRequired,
    "missing_scope": MissingScope,
    "not_owner": NotOwner,
    "not_found": NotFound,
    "method_not_allowed": MethodNotAllowed,
    "body_too_slow": BodyTooSlow,
    "conflict": Conflict,
    "link_version": LinkVersion,
    "name_taken": NameTaken,
    "idempotency_in_progress": IdempotencyInProgress,
    "body_too_large": BodyTooLarge,
    "unsupported_encoding": UnsupportedEncoding,
    "range_not_satisfiable": RangeNotSatisfiable,
    "invalid_body": InvalidBody,
    "idempotency_mismatch": IdempotencyMismatch,
    "quota_exceeded": QuotaExceeded,
    "no_capacity": NoCapacity,
    "image_not_found": ImageNotFound,
    "image_refused": ImageRefused,
    "image_not_allowed": ImageNotAllowed,
    "image_wrong_platform": ImageWrongPlatform,
    "image_not_cached": ImageNotCached,
    "rate_limited": RateLimited,
    "internal": Internal,
    "not_implemented": NotImplemented,
    "guest_unreachable": GuestUnreachable,
    "unavailable": Unavailable,
    "start_failed": StartFailed,
    "no_space": NoSpace,
}

ADVICE: Dict[str, str] = {
    "invalid_json": "send a body that is JSON",
    "invalid_request": "change the values that the text names",
    "missing_key": "give the client an API key",
    "unknown_key": "make another key: this one was revoked, or is of another Flotilla",
    "expired_key": "make another key with a later end",
    "payment_required": "raise the budget, or have the operator reactivate the tenant",
    "missing_scope": "use a key with the scope that the text names",
    "not_owner": "send the token that made the resource",
    "not_found": "check the id; lists show what the key may see",
    "method_not_allowed": "use a client of the server's release",
    "body_too_slow": "send the call again on a faster connection",
    "conflict": "read the resource, and send the call again when its state allows it",
    "link_version": "install the server's release on the node",
    "name_taken": "choose another name, or use the resource that has this one",
    "idempotency_in_progress": "send the same call with the same idempotency key again in a moment",
    "body_too_large": "send less at once; files have their own calls",
    "unsupported_encoding": "send the body as it is, not compressed",
    "range_not_satisfiable": "ask for a range inside the file",
    "invalid_body": "correct the field that `details` names",
    "idempotency_mismatch": "use a new idempotency key for another request",
    "quota_exceeded": "delete or stop what is not needed, or ask for a larger plan",
    "no_capacity": "try again later or with a smaller machine; the operator can add nodes",
    "image_not_found": "check the image's name and tag",
    "image_refused": "give the registry's credentials, or use an image that is public",
    "image_not_allowed": "use an image of an allowed registry",
    "image_wrong_platform": "use an image for the processors of the nodes",
    "image_not_cached": "pull the image to the node first, or allow the machine its network",
    "rate_limited": "send fewer calls, and wait as long as `Retry-After` says",
    "internal": "report the request id to the operator",
    "not_implemented": "this Flotilla does not serve that yet",
    "guest_unreachable": "start the machine, which restarts one that hangs",
    "unavailable": "send the call again in a moment",
    "start_failed": "read the text and the machine's log, then start it again",
    "no_space": "delete files, or make a machine with a larger disk",
}

__all__ = [
    "Aborted",
    "BodyTooLarge",
    "BodyTooSlow",
    "Conflict",
    "ExpiredKey",
    "FlotillaError",
    "GuestUnreachable",
    "IdempotencyInProgress",
    "IdempotencyMismatch",
    "ImageNotAllowed",
    "ImageNotCached",
    "ImageNotFound",
    "ImageRefused",
    "ImageWrongPlatform",
    "Internal",
    "InvalidBody",
    "InvalidJson",
    "InvalidRequest",
    "LinkVersion",
    "MethodNotAllowed",
    "MissingKey",
    "MissingScope",
    "NameTaken",
    "NoAnswer",
    "NoCapacity",
    "NoSpace",
    "NotFound",
    "NotImplemented",
    "NotOwner",
    "PaymentRequired",
    "QuotaExceeded",
    "RangeNotSatisfiable",
    "RateLimited",
    "StartFailed",
    "TimedOut",
    "Unavailable",
    "UnknownKey",
    "Unreachable",
    "UnsupportedEncoding",
]
