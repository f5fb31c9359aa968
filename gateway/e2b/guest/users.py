"""Users of the machine, and paths as they mean them.

A user that does not exist is a refusal. The default is `user` where the image has one, else the helper's own.
"""

import grp
import os
import pwd

from faults import Fault

DEFAULT = "user"


def of(name):
    """The entry of a user; empty: the default."""
    try:
        if name:
            return pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
    except KeyError:
        raise Fault("unauthenticated", f"invalid username: '{name}'") from None
    try:
        return pwd.getpwnam(DEFAULT)
    except KeyError:
        return pwd.getpwuid(os.getuid())


def name_of(uid):
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def group_of(gid):
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def resolve(path, user):
    """The absolute path: `~` and relative ones begin in the user's home."""
    if not isinstance(path, str):
        raise Fault("invalid_argument", "path is not a string")
    if "\0" in path:
        raise Fault("invalid_argument", "path contains a NUL character")
    if path == "~" or path.startswith("~/"):
        path = user.pw_dir + path[1:]
    return os.path.normpath(os.path.join(user.pw_dir, path))


def own(path, user):
    """Gives a file that was made to the user; the helper of a test is not root, and leaves it."""
    if os.getuid() == 0:
        os.chown(path, user.pw_uid, user.pw_gid)


def make_parents(path, user):
    """Makes the missing directories above a path, owned by the user."""
    missing = []
    parent = os.path.dirname(path)
    while not os.path.isdir(parent):
        if os.path.lexists(parent):
            raise Fault("invalid_argument", f"{parent} is not a directory")
        missing.append(parent)
        parent = os.path.dirname(parent)
    for each in reversed(missing):
        os.mkdir(each, 0o755)
        own(each, user)
