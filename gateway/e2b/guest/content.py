"""Files over HTTP: reading with ranges, writing as a raw body or as parts of a form, also compressed.

Always: an existing file is truncated and written in place, and a new one is its user's. The order of an
answer is that of the parts.
"""

import os
import re
import zlib

import filesystem
import users
from faults import Fault, of_system

PIECE_BYTES = 256 * 1024
PART_HEAD_BYTES_MAX = 16 * 1024
METADATA = "x-metadata-"
METADATA_BYTES_MAX = 4096
TYPES = {
    **{".txt": "text/plain; charset=utf-8", ".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8"},
    **{".js": "text/javascript; charset=utf-8", ".json": "application/json", ".png": "image/png", ".jpg": "image/jpeg"},
    **{".jpeg": "image/jpeg", ".gif": "image/gif", ".svg": "image/svg+xml", ".pdf": "application/pdf"},
}


def answer(request, user_name):
    try:
        user = users.of(user_name)
        if request.method in ("GET", "HEAD"):
            return send(request, user)
        if request.method == "POST":
            return request.answer_json(200, receive(request, user))
        raise Fault("unimplemented", f"{request.method} of files is not implemented")
    except Fault as fault:
        request.answer_json(fault.status, {"code": fault.status, "message": fault.message})
    except ValueError as error:
        request.answer_json(400, {"code": 400, "message": str(error)})


def send(request, user):
    path = users.resolve(request.query.get("path", ""), user)
    try:
        if os.path.isdir(path):
            raise Fault("invalid_argument", f"path '{path}' is a directory")
        if os.path.exists(path) and not os.path.isfile(path):
            raise Fault("invalid_argument", f"path '{path}' is not a regular file")
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            first, last = range_of(request.headers.get("range"), size)
            if first is None:
                return request.answer(416, "text/plain", b"")
            is_part = first > 0 or last < size - 1
            name = re.sub(r'[^ !#-\[\]-~]', "_", os.path.basename(path))
            head = {
                "content-type": TYPES.get(os.path.splitext(path)[1].lower(), "application/octet-stream"),
                "content-length": last - first + 1,
                "content-disposition": f'inline; filename="{name}"',
                "accept-ranges": "bytes",
                **({"content-range": f"bytes {first}-{last}/{size}"} if is_part else {}),
            }
            request.begin(206 if is_part else 200, head)
            if request.method == "HEAD":
                return None
            file.seek(first)
            left = last - first + 1
            while left > 0:
                piece = file.read(min(left, PIECE_BYTES))
                if not piece:
                    raise ConnectionError("the file became shorter")
                request.connection.sendall(piece)
                left -= len(piece)
    except ConnectionError:
        raise
    except OSError as error:
        raise of_system(error, path) from None
    return None


def range_of(text, size):
    """The first and the last byte; (None, None) for none."""
    found = re.fullmatch(r"bytes=(\d*)-(\d*)", text or "")
    if found is None or found.group(0) == "bytes=-":
        return 0, size - 1
    begin, end = found.groups()
    if begin == "":
        return max(0, size - int(end)), size - 1
    if int(begin) >= size:
        return None, None
    return int(begin), min(int(end) if end else size - 1, size - 1)


def receive(request, user):
    metadata = metadata_of(request)
    path = request.query.get("path")
    kind = request.headers.get("content-type", "")
    pieces = decoded(request.pieces(), request.headers.get("content-encoding", "identity"))
    if not kind.startswith("multipart/form-data"):
        if not path:
            raise Fault("invalid_argument", "a raw upload needs a path")
        return [write(users.resolve(path, user), pieces, user, metadata)]
    boundary = re.search(r'boundary="?([^";]+)"?', kind)
    if boundary is None:
        raise Fault("invalid_argument", "the form has no boundary")
    written = []
    for name, file_name, part in parts_of(pieces, boundary.group(1).encode("latin-1")):
        if name != "file":
            for _ in part:
                pass
            continue
        target = users.resolve(path or file_name or "", user)
        if any(each["path"] == target for each in written):
            raise Fault("invalid_argument", f"you cannot upload multiple files to the same path '{target}'")
        written.append(write(target, part, user, metadata))
    return written


def write(path, pieces, user, metadata):
    try:
        if os.path.isdir(path):
            raise Fault("invalid_argument", f"path is a directory: {path}")
        users.make_parents(path, user)
        with open(path, "wb") as file:
            users.own(path, user)
            for piece in pieces:
                file.write(piece)
        if metadata or filesystem.attributes_of(path):
            filesystem.set_attributes(path, metadata)
    except OSError as error:
        raise of_system(error, path) from None
    entry = {"path": path, "name": os.path.basename(path), "type": "file"}
    return {**entry, "metadata": metadata} if metadata else entry


def metadata_of(request):
    found = {}
    for name, value in request.fields:
        if name.lower().startswith(METADATA):
            if not value.isascii() or not value.isprintable():
                raise Fault("invalid_argument", f"the metadata {name} is not printable ASCII")
            found[name.lower()[len(METADATA) :]] = value
    if sum(len(name) + len(value) for name, value in found.items()) > METADATA_BYTES_MAX:
        raise Fault("invalid_argument", f"the metadata has more than {METADATA_BYTES_MAX} bytes")
    return found


def decoded(pieces, encoding):
    if encoding in ("", "identity"):
        return pieces
    if encoding not in ("gzip", "deflate"):
        raise Fault("invalid_argument", f"unsupported content encoding {encoding}")
    return unpacked(pieces)


def unpacked(pieces):
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        for piece in pieces:
            while piece:
                data = unpacker.decompress(piece, PIECE_BYTES)
                piece = unpacker.unconsumed_tail
                if data:
                    yield data
        rest = unpacker.flush()
        if rest:
            yield rest
    except zlib.error as error:
        raise Fault("invalid_argument", f"the body is not what its encoding says: {error}") from None
    if not unpacker.eof:
        raise Fault("invalid_argument", "the compressed body ends early")


class Parts:
    """What was received of a form."""

    def __init__(self, pieces):
        self._pieces = iter(pieces)
        self.data = bytearray()

    def more(self):
        try:
            self.data += next(self._pieces)
        except StopIteration:
            raise Fault("invalid_argument", "the form ends early") from None


def parts_of(pieces, boundary):
    """Each part's name, file name and content; a content is read before the next part is asked for."""
    form = Parts(pieces)
    mark = b"\r\n--" + boundary
    form.data += b"\r\n"
    for _ in content_of(form, mark):
        pass
    while True:
        while len(form.data) < 2:
            form.more()
        if form.data[:2] == b"--":
            return
        while b"\r\n\r\n" not in form.data:
            if len(form.data) > PART_HEAD_BYTES_MAX:
                raise Fault("invalid_argument", "the head of a part is too large")
            form.more()
        end = form.data.index(b"\r\n\r\n")
        head = form.data[:end].decode("utf-8", "surrogateescape")
        del form.data[: end + 4]
        content = content_of(form, mark)
        yield parameter(head, "name"), parameter(head, "filename"), content
        for _ in content:
            pass


def content_of(form, mark):
    while True:
        at = form.data.find(mark)
        if at >= 0:
            data = bytes(form.data[:at])
            del form.data[: at + len(mark)]
            if data:
                yield data
            return
        safe = len(form.data) - len(mark)
        if safe > 0:
            data = bytes(form.data[:safe])
            del form.data[:safe]
            yield data
        form.more()


def parameter(head, name):
    found = re.search(rf'[;\s]{name}="((?:[^"\\]|\\.)*)"', head) or re.search(rf"[;\s]{name}=([^;\s]+)", head)
    if found is None:
        return None
    # Browsers and Node write these three characters so.
    return found.group(1).replace("%22", '"').replace("%0D", "\r").replace("%0A", "\n").replace('\\"', '"')
