"""A story against a running Flotilla, of FLOTILLA_URL and FLOTILLA_API_KEY; both clients."""

from __future__ import annotations

import asyncio
import io
from typing import Any

from flotilla import AsyncFlotilla, Exit, Flotilla, Stdout, errors

SMALL: Any = {
    "source": {"type": "image", "reference": "local/busybox"},
    "resources": {"cpus": 1, "memoryMb": 256, "diskGb": 1},
}
CONTENT = bytes(range(256)) * 4096


def waiting() -> None:
    with Flotilla() as flotilla:
        with flotilla.machine(SMALL) as machine:
            id = machine["id"]
            answer = flotilla.exec(id, {"command": "echo out; echo err >&2; exit 3"})
            assert (answer["exitCode"], answer["stdout"], answer["stderr"]) == (3, "out\n", "err\n")
            flotilla.put_file_at(id, "/tmp/content", io.BytesIO(CONTENT))
            with flotilla.read_file_at(id, "/tmp/content") as file:
                assert b"".join(file) == CONTENT
            events = list(flotilla.stream_exec(id, {"command": ["cat", "/tmp/content"]}))
            assert b"".join(each.data for each in events if isinstance(each, Stdout)) == CONTENT
            assert events[-1] == Exit(0)
            with flotilla.stream_exec(id, {"command": "echo begun; sleep 600"}) as output:
                assert next(iter(output)) == Stdout(b"begun\n")
            with flotilla.open_terminal(id, cmd="/bin/sh", cols=100, rows=30) as terminal:
                terminal.resize(90, 20)
                terminal.send(b"exit 5\n")
                for _ in terminal:
                    pass
            assert terminal.exit_code == 5, terminal.exit_code
            assert id in [each["id"] for each in flotilla.list_all("/v1/machines", limit=1)]
        try:
            flotilla.get_machine(id)
        except errors.NotFound as error:
            assert error.request_id and error.advice, error
        else:
            raise AssertionError("the machine is still there")


async def awaiting() -> None:
    async with AsyncFlotilla() as flotilla:
        async with flotilla.machine(SMALL) as machine:
            id = machine["id"]
            runs = [flotilla.exec(id, {"command": f"echo {n}"}) for n in range(5)]
            answers = await asyncio.gather(*runs)
            assert [each["stdout"] for each in answers] == [f"{n}\n" for n in range(5)]
            await flotilla.put_file_at(id, "/tmp/content", io.BytesIO(CONTENT))
            async with await flotilla.read_file_at(id, "/tmp/content") as file:
                assert await file.read() == CONTENT
            async with await flotilla.stream_exec(id, {"command": "echo one; exit 4"}) as output:
                events = [event async for event in output]
            assert events == [Stdout(b"one\n"), Exit(4)], events
            async with flotilla.open_terminal(id, cmd="/bin/sh") as terminal:
                await terminal.send(b"exit 6\n")
                async for _ in terminal:
                    pass
            assert terminal.exit_code == 6, terminal.exit_code
        try:
            await flotilla.get_machine(id)
        except errors.NotFound:
            pass
        else:
            raise AssertionError("the machine is still there")


waiting()
asyncio.run(awaiting())
print("done")
