"""The client against prepared answers: what it sends, what it retries, and its errors."""

from __future__ import annotations

import asyncio
import io
import json
import unittest
from typing import Any, Callable, Dict, Iterator, List, cast

import httpx

from flotilla import AsyncFlotilla, Exit, Flotilla, Stderr, Stdout, errors

Reply = Callable[[httpx.Request], httpx.Response]
SOURCE: Any = {"source": {"type": "image", "reference": "alpine"}}


def frame(kind: int, payload: bytes) -> bytes:
    return bytes([kind, 0, 0, 0]) + len(payload).to_bytes(4, "big") + payload


class Peer:
    """Answers the n-th request with the n-th reply, and every later one with the last."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = replies
        self.requests: List[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        return self.replies[min(len(self.requests), len(self.replies)) - 1](request)

    async def awaited(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        self.requests.append(request)
        return self.replies[min(len(self.requests), len(self.replies)) - 1](request)

    def client(self, **options: Any) -> Flotilla:
        transport = httpx.MockTransport(self)
        return Flotilla("http://flotilla.invalid", "smk_x", transport=transport, **options)

    def awaiting(self) -> AsyncFlotilla:
        transport: Any = httpx.MockTransport(cast(Any, self.awaited))
        return AsyncFlotilla("http://flotilla.invalid", "smk_x", transport=transport)


def reply(status: int, body: Any = b"", **headers: str) -> Reply:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _: httpx.Response(status, content=content, headers=named)


def lost(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadError("the connection broke", request=request)


class TestCalls(unittest.TestCase):
    def test_a_call_sends_the_key_the_body_and_the_query(self) -> None:
        peer = Peer(reply(200, {"id": "mach-1"}))
        machine = peer.client().create_machine(SOURCE, idempotency_key="once")
        self.assertEqual(machine["id"], "mach-1")
        sent = peer.requests[0]
        self.assertEqual(f"{sent.method} {sent.url.path}", "POST /v1/machines")
        self.assertEqual(sent.headers["authorization"], "Bearer smk_x")
        self.assertEqual(sent.headers["idempotency-key"], "once")
        self.assertEqual(json.loads(sent.content), SOURCE)
        peer.client().list_machines(label=["a=b c", "d=&"])
        self.assertEqual(peer.requests[1].url.query, b"label=a%3Db+c&label=d%3D%26")
        peer.client().stop_machine("mach-1", keep_memory=True)
        self.assertEqual(peer.requests[2].url.query, b"keepMemory=true")

    def test_a_path_parameter_leads_to_no_other_resource(self) -> None:
        peer = Peer(reply(200, {}))
        peer.client().get_machine("a/b?c")
        self.assertEqual(peer.requests[0].url.raw_path, b"/v1/machines/a%2Fb%3Fc")
        for name in ("", ".", ".."):
            with self.assertRaises(ValueError):
                peer.client().get_machine(name)
        with self.assertRaises(ValueError):
            peer.client().read_file_at("mach-1", "/tmp/../x")

    def test_a_refusal_is_the_exception_of_its_code(self) -> None:
        problem = {"detail": "the name is taken", "code": "name_taken", "details": {"field": "name"}}
        peer = Peer(reply(409, problem, x_error_code="name_taken", x_request_id="req-7"))
        with self.assertRaises(errors.NameTaken) as raised:
            peer.client().create_machine(SOURCE)
        error = raised.exception
        self.assertEqual((error.status, error.code, error.text), (409, "name_taken", problem["detail"]))
        self.assertEqual((error.request_id, error.call), ("req-7", "POST /v1/machines"))
        self.assertEqual(error.details, {"field": "name"})
        self.assertIn("another name", error.advice or "")
        with self.assertRaises(errors.FlotillaError) as other:
            Peer(reply(500, b"<html>")).client().start_machine("m")
        self.assertEqual((other.exception.code, other.exception.advice), ("http_500", None))
        with self.assertRaises(errors.MissingKey):
            Peer(reply(401)).client().get_caller()

    def test_what_changes_nothing_is_retried_as_long_as_the_server_asks(self) -> None:
        peer = Peer(reply(503, retry_after="0"), reply(429, retry_after="0"), reply(200, []))
        self.assertEqual(peer.client().list_machines(), [])
        self.assertEqual(len(peer.requests), 3)
        patient = Peer(reply(429, retry_after="3600", x_error_code="rate_limited"))
        with self.assertRaises(errors.RateLimited):
            patient.client().list_machines()
        self.assertEqual(len(patient.requests), 1)
        post = Peer(reply(503, retry_after="0", x_error_code="unavailable"))
        with self.assertRaises(errors.Unavailable):
            post.client().start_machine("m")
        self.assertEqual(len(post.requests), 1)

    def test_a_post_with_a_key_is_sent_again_also_when_its_answer_was_lost(self) -> None:
        in_progress = reply(409, x_error_code="idempotency_in_progress", retry_after="0")
        peer = Peer(lost, in_progress, reply(200, {"id": "mach-1"}))
        self.assertEqual(peer.client().create_machine(SOURCE, idempotency_key="k")["id"], "mach-1")
        keys = {(each.headers["idempotency-key"], each.content) for each in peer.requests}
        self.assertEqual((len(peer.requests), len(keys)), (3, 1))
        with self.assertRaises(errors.Unreachable):
            Peer(lost).client().create_machine(SOURCE)

    def test_a_block_deletes_what_it_made_also_when_it_raises(self) -> None:
        peer = Peer(reply(200, {"id": "mach-1"}), reply(404, x_error_code="not_found"))
        with self.assertRaises(KeyError):
            with peer.client().machine(SOURCE):
                raise KeyError
        sent = [f"{each.method} {each.url.path}" for each in peer.requests]
        self.assertEqual(sent, ["POST /v1/machines", "DELETE /v1/machines/mach-1"])
        self.assertIn("idempotency-key", peer.requests[0].headers)

    def test_a_list_is_read_page_by_page(self) -> None:
        link = '</v1/machines?limit=100&cursor=a%2Bb>; rel="next"'
        peer = Peer(reply(200, [{"id": "1"}], link=link), reply(200, [{"id": "2"}]))
        self.assertEqual([each["id"] for each in peer.client().list_all("/v1/machines")], ["1", "2"])
        self.assertEqual(peer.requests[1].url.params["cursor"], "a+b")

    def test_files_are_streams(self) -> None:
        peer = Peer(reply(200))
        peer.client().put_file_at("m", "/x", io.BytesIO(b"a" * 200_000))
        self.assertEqual(peer.requests[0].content, b"a" * 200_000)
        self.assertEqual(peer.requests[0].headers["transfer-encoding"], "chunked")
        self.assertEqual(Peer(reply(200, b"bytes")).client().read_file_at("m", "/x").read(), b"bytes")

    def test_a_key_that_no_header_carries_is_refused_and_not_shown(self) -> None:
        with self.assertRaises(ValueError) as raised:
            Flotilla("http://flotilla.invalid", "smk_secret\n")
        self.assertNotIn("secret", str(raised.exception))


class TestOutput(unittest.TestCase):
    whole = frame(0, b"") + frame(1, b"out\xff") + frame(2, b"err") + frame(3, b'{"exitCode":7}')

    def pieces(self, size: int) -> Iterator[bytes]:
        for at in range(0, len(self.whole), size):
            yield self.whole[at : at + size]

    def test_output_comes_whole_in_pieces_of_any_size(self) -> None:
        for size in range(1, len(self.whole) + 1):
            parts = self.pieces(size)
            peer = Peer(lambda _, parts=parts: httpx.Response(200, content=parts))  # type: ignore[misc]
            events = list(peer.client().stream_exec("m", {"command": "x"}))
            out = b"".join(each.data for each in events if isinstance(each, Stdout))
            err = b"".join(each.data for each in events if isinstance(each, Stderr))
            self.assertEqual((out, err, events[-1]), (b"out\xff", b"err", Exit(7)))

    def test_an_end_that_is_unknown_is_an_error(self) -> None:
        for body, kind in (
            (self.whole[:-1], errors.Unreachable),
            (frame(4, b'{"code":"unavailable","message":"why"}'), errors.Unavailable),
            (frame(4, b"x")[:4] + (1 << 30).to_bytes(4, "big") + b"x", errors.Unreachable),
        ):
            with self.assertRaises(kind):
                list(Peer(reply(200, body)).client().stream_exec("m", {"command": "x"}))


class TestAwaited(unittest.TestCase):
    def test_the_same_is_awaited(self) -> None:
        async def story() -> Dict[str, Any]:
            body = TestOutput.whole
            peer = Peer(reply(200, {"id": "mach-1"}), reply(200), reply(200, body), reply(404, x_error_code="not_found"))
            async with peer.awaiting() as flotilla:
                async with flotilla.machine(SOURCE) as machine:
                    await flotilla.put_file_at(machine["id"], "/x", io.BytesIO(b"content"))
                    async with await flotilla.stream_exec(machine["id"], {"command": "x"}) as output:
                        events = [event async for event in output]
            return {"sent": [each.method for each in peer.requests], "last": events[-1], "file": peer.requests[1].content}

        found = asyncio.run(story())
        self.assertEqual(found, {"sent": ["POST", "PUT", "POST", "DELETE"], "last": Exit(7), "file": b"content"})

    def test_a_lost_answer_is_asked_for_again_with_its_key(self) -> None:
        async def story() -> int:
            peer = Peer(lost, reply(200, {"id": "mach-1"}))
            async with peer.awaiting() as flotilla:
                await flotilla.create_machine(SOURCE, idempotency_key="k")
            return len(peer.requests)

        self.assertEqual(asyncio.run(story()), 2)


if __name__ == "__main__":
    unittest.main()
