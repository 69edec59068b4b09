"""A server of Modal on 127.0.0.1: it answers every call with its empty reply, and carries functions out itself."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from grpclib.const import Cardinality, Handler
from grpclib.server import Server
from modal._serialization import deserialize, serialize
from modal_proto import api_pb2
from modal_proto.api_grpc import ModalClientBase

PICKLE = api_pb2.DATA_FORMAT_PICKLE


class Names:
    """Collects the routes that a base class makes of methods, whichever they are."""

    def __getattr__(self, name: str) -> Any:
        return name


class FakeModal:
    """`with FakeModal() as server:` answers at `server.address`."""

    def __init__(self) -> None:
        self.functions: list[Any] = []
        self.calls: dict[str, Future[Any]] = {}
        self.cancelled: list[str] = []
        self.asked: list[str] = []
        self.paused = threading.Event()
        self.paused.set()
        self.pool = ThreadPoolExecutor(1)
        self.loop = asyncio.new_event_loop()

    # ---- one reply each ------------------------------------------------------------------------

    def FunctionCreate(self, asked: Any, reply: Any) -> None:  # noqa: N802
        self.functions.append(asked.function)
        reply.function_id = "fu-1"
        reply.function_data.ranked_functions.add(function=asked.function)
        reply.handle_metadata.function_name = asked.function.function_name
        reply.handle_metadata.definition_id = "de-1"

    def FunctionMap(self, asked: Any, reply: Any) -> None:  # noqa: N802
        reply.function_call_id = f"fc-{len(self.calls) + 1}"
        self.calls[reply.function_call_id] = self.pool.submit(self.carry_out, asked.pipelined_inputs[0].input)
        reply.pipelined_inputs.add(input_id="in-1")

    def carry_out(self, item: Any) -> bytes:
        self.paused.wait(120)
        words, options = deserialize(item.args, None)
        return bytes(serialize(deserialize(self.functions[-1].function_serialized, None)(*words, **options)))

    def FunctionCallFromId(self, asked: Any, reply: Any) -> None:  # noqa: N802
        reply.function_call_id = asked.function_call_id

    def FunctionCallCancel(self, asked: Any, reply: Any) -> None:  # noqa: N802
        self.cancelled.append(asked.function_call_id)
        self.calls[asked.function_call_id].cancel()

    def FunctionGetOutputs(self, asked: Any, reply: Any) -> None:  # noqa: N802
        call = self.calls.get(asked.function_call_id)
        if call is None or call.cancelled():
            return
        if not call.done():
            reply.num_unfinished_inputs = 1
        elif call.exception() is not None:
            failed = api_pb2.GenericResult.GENERIC_STATUS_FAILURE
            reply.outputs.add(result=api_pb2.GenericResult(status=failed, exception=repr(call.exception())))
        else:
            done = api_pb2.GenericResult.GENERIC_STATUS_SUCCESS
            reply.outputs.add(result=api_pb2.GenericResult(status=done, data=call.result()), data_format=PICKLE)

    def ImageGetOrCreate(self, asked: Any, reply: Any) -> None:  # noqa: N802
        reply.image_id = "im-1"
        reply.result.status = api_pb2.GenericResult.GENERIC_STATUS_SUCCESS

    def ImageJoinStreaming(self, asked: Any, reply: Any) -> None:  # noqa: N802
        reply.result.status = api_pb2.GenericResult.GENERIC_STATUS_SUCCESS

    def MountPutFile(self, asked: Any, reply: Any) -> None:  # noqa: N802
        reply.exists = True

    def EnvironmentGetOrCreate(self, asked: Any, reply: Any) -> None:  # noqa: N802
        reply.metadata.settings.image_builder_version = "2025.06"

    def plain(self, reply: Any) -> None:
        """Ids of everything else."""
        for name in ("app_id", "function_id", "volume_id", "mount_id", "secret_id", "environment_id"):
            if name in reply.DESCRIPTOR.fields_by_name:
                setattr(reply, name, f"{name[:2]}-1")

    # ---- the server ----------------------------------------------------------------------------

    def __mapping__(self) -> dict[str, Handler]:
        found = {}
        for path, route in ModalClientBase.__mapping__(Names()).items():  # type: ignore[arg-type]
            handler = self._handler(path.rpartition("/")[2], route)
            found[path] = Handler(handler, route.cardinality, route.request_type, route.reply_type)
        return found

    def _handler(self, name: str, route: Any) -> Any:
        async def answer(stream: Any) -> None:
            asked = await stream.recv_message()
            self.asked.append(name)
            reply = route.reply_type()
            self.plain(reply)
            own = getattr(self, name, None)
            if own is not None:
                own(asked, reply)
            if route.cardinality in (Cardinality.UNARY_UNARY, Cardinality.UNARY_STREAM):
                await stream.send_message(reply)

        return answer

    def __enter__(self) -> FakeModal:
        ready = threading.Event()

        def serve() -> None:
            asyncio.set_event_loop(self.loop)
            self.server = Server([self])  # type: ignore[list-item]
            self.loop.run_until_complete(self.server.start("127.0.0.1", 0))
            self.port = self.server._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
            ready.set()
            self.loop.run_forever()

        threading.Thread(target=serve, daemon=True).start()
        assert ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self.paused.set()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.pool.shutdown(cancel_futures=True)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"
