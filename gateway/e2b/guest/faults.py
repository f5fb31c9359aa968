"""Refusals of the helper: a Connect code with a sentence, and the HTTP status of each code."""

STATUSES = {
    "canceled": 499,
    "unknown": 500,
    "invalid_argument": 400,
    "failed_precondition": 400,
    "deadline_exceeded": 504,
    "not_found": 404,
    "already_exists": 409,
    "permission_denied": 403,
    "resource_exhausted": 507,
    "unimplemented": 501,
    "internal": 500,
    "unavailable": 503,
    "unauthenticated": 401,
}


class Fault(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self):
        return STATUSES.get(self.code, 500)


def of_system(error, path):
    """The fault that an OSError at a path is."""
    import errno

    text = f"{path}: {error.strerror or error}"
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return Fault("not_found", f"path '{path}' does not exist")
    if error.errno == errno.EEXIST:
        return Fault("already_exists", text)
    if error.errno in (errno.EACCES, errno.EPERM):
        return Fault("permission_denied", text)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Fault("resource_exhausted", text)
    if error.errno in (errno.EISDIR, errno.EINVAL, errno.ENAMETOOLONG, errno.ELOOP):
        return Fault("invalid_argument", text)
    return Fault("internal", text)
