"""Entries of directories, and the calls that change them."""

import os
import shutil
import stat
from datetime import datetime, timezone

import users
from faults import Fault, of_system

ATTRIBUTE = "user.e2b."
DEPTH_MAX = 1000
ENTRIES_MAX = 100_000


def entry_of(path):
    """What is said of a path, as EntryInfo in JSON. Throws an OSError."""
    own = os.lstat(path)
    is_link = stat.S_ISLNK(own.st_mode)
    seen = own
    if is_link:
        try:
            seen = os.stat(path)
        except OSError:
            seen = own
    kind = "FILE_TYPE_UNSPECIFIED"
    if stat.S_ISREG(seen.st_mode):
        kind = "FILE_TYPE_FILE"
    elif stat.S_ISDIR(seen.st_mode):
        kind = "FILE_TYPE_DIRECTORY"
    elif is_link:
        kind = "FILE_TYPE_SYMLINK"
    moment = datetime.fromtimestamp(seen.st_mtime, timezone.utc)
    entry = {
        "name": os.path.basename(path),
        "type": kind,
        "path": path,
        "size": str(seen.st_size),
        "mode": stat.S_IMODE(seen.st_mode) & 0o777,
        "permissions": permissions_of(own.st_mode),
        "owner": users.name_of(own.st_uid),
        "group": users.group_of(own.st_gid),
        "modifiedTime": moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    if is_link:
        entry["symlinkTarget"] = os.path.realpath(path)
    attributes = attributes_of(path)
    return {**entry, "metadata": attributes} if attributes else entry


def permissions_of(mode):
    text = stat.filemode(mode)
    return ("L" if text[0] == "l" else text[0]) + text[1:]


def attributes_of(path):
    try:
        names = [name for name in os.listxattr(path) if name.startswith(ATTRIBUTE)]
        return {name[len(ATTRIBUTE) :]: os.getxattr(path, name).decode("utf-8", "replace") for name in names}
    except OSError:
        return {}


def set_attributes(path, attributes):
    """The file has these, and no others of ours."""
    for name in [name for name in os.listxattr(path) if name.startswith(ATTRIBUTE)]:
        os.removexattr(path, name)
    for name, value in attributes.items():
        os.setxattr(path, ATTRIBUTE + name, value.encode())


def get(request, user):
    path = users.resolve(request.get("path", ""), user)
    try:
        return {"entry": entry_of(path)}
    except OSError as error:
        raise of_system(error, path) from None


def list_directory(request, user):
    path = users.resolve(request.get("path", ""), user)
    depth = min(int(request.get("depth") or 1), DEPTH_MAX)
    entries = []

    def walk(directory, left):
        for name in sorted(os.listdir(directory)):
            if len(entries) >= ENTRIES_MAX:
                raise Fault("resource_exhausted", f"{path} has more than {ENTRIES_MAX} entries")
            inner = os.path.join(directory, name)
            try:
                entries.append(entry_of(inner))
                if left > 1 and stat.S_ISDIR(os.lstat(inner).st_mode):
                    walk(inner, left - 1)
            except FileNotFoundError:
                continue

    try:
        if not os.path.isdir(path):
            os.stat(path)
            raise Fault("invalid_argument", f"path is not a directory: {path}")
        walk(path, depth)
    except OSError as error:
        raise of_system(error, path) from None
    return {"entries": entries}


def make_directory(request, user):
    path = users.resolve(request.get("path", ""), user)
    if os.path.isdir(path):
        raise Fault("already_exists", f"directory already exists: {path}")
    if os.path.lexists(path):
        raise Fault("invalid_argument", f"path already exists but it is not a directory: {path}")
    try:
        users.make_parents(os.path.join(path, "x"), user)
        return {"entry": entry_of(path)}
    except OSError as error:
        raise of_system(error, path) from None


def move(request, user):
    source = users.resolve(request.get("source", ""), user)
    destination = users.resolve(request.get("destination", ""), user)
    try:
        os.lstat(source)
        users.make_parents(destination, user)
        os.rename(source, destination)
        return {"entry": entry_of(destination)}
    except OSError as error:
        raise of_system(error, source) from None


def remove(request, user):
    path = users.resolve(request.get("path", ""), user)
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise of_system(error, path) from None
    return {}
