"""Names, signatures and the enum, as callers of ``mooncake.engine`` know them."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest
from moonrail import mooncake
from moonrail.mooncake import TransferEngine, TransferNotify, TransferOpcode

NAMES = {
    "CoroRPCInterface",
    "InnerTransferEngine",
    "Read",
    "ReceivedData",
    "ReceivedTensor",
    "RpcInterface",
    "SUPPORT_CUDA",
    "SUPPORT_EFA",
    "SUPPORT_HIP",
    "SUPPORT_INTRA_NVLINK",
    "SUPPORT_MNNVL",
    "SUPPORT_MUSA",
    "SharedSegment",
    "TransferEngine",
    "TransferNotify",
    "TransferOpcode",
    "Write",
    "create_rpc_client",
    "create_rpc_server",
}

ONE = "target_hostname, buffer, peer_buffer_address, length"
MANY = "target_hostname, buffers, peer_buffer_addresses, lengths"

SIGNATURES = {
    "initialize": "(self, host, metadata_server, protocol, device_name, /)",
    "initialize_ext": "(self, host, metadata_server, protocol, device_name, metadata_type, /)",
    "get_rpc_port": "(self, /)",
    "allocate_managed_buffer": "(self, length, /)",
    "free_managed_buffer": "(self, addr, length, /)",
    "transfer_sync_write": f"(self, /, {ONE}, transport_hint='')",
    "transfer_sync_read": f"(self, /, {ONE}, transport_hint='')",
    "transfer_sync": f"(self, /, {ONE}, opcode, notify=None, transport_hint='')",
    "batch_transfer_sync_write": f"(self, /, {MANY}, transport_hint='')",
    "batch_transfer_sync_read": f"(self, /, {MANY}, transport_hint='')",
    "batch_transfer_sync": f"(self, /, {MANY}, opcode, notify=None, transport_hint='')",
    "batch_transfer_async_write": f"(self, /, {MANY}, transport_hint='')",
    "batch_transfer_async_read": f"(self, /, {MANY}, transport_hint='')",
    "batch_transfer_async": f"(self, /, {MANY}, opcode, transport_hint='')",
    "get_batch_transfer_status": "(self, batch_ids, /)",
    "transfer_submit_write": f"(self, /, {ONE}, transport_hint='')",
    "transfer_check_status": "(self, batch_id, /)",
    "register_memory": "(self, /, buffer_addr, capacity, location='*')",
    "unregister_memory": "(self, addr, /)",
    "batch_register_memory": "(self, /, buffer_addresses, capacities, location='*')",
    "batch_unregister_memory": "(self, buffer_addresses, /)",
    "get_first_buffer_address": "(self, segment_name, /)",
    "write_bytes_to_buffer": "(self, dest, src, length, /)",
    "read_bytes_from_buffer": "(self, src, length, /)",
    "get_notifies": "(self, /)",
    "send_probe": "(self, /, peer_server_name)",
    "get_local_topology": "(self, /, device_name=None)",
    "warmup_efa_segment": "(self, /, segment_name)",
    "get_engine": "(self, /)",
    "get_engine_ptr": "(self, /)",
    "last_error": "(self, /)",
}


def test_every_name_is_there() -> None:
    assert set(mooncake.__all__) == NAMES
    assert all(hasattr(mooncake, name) for name in NAMES)
    assert mooncake.CoroRPCInterface is mooncake.RpcInterface


def test_no_build_option_is_claimed() -> None:
    assert all(getattr(mooncake, name) is False for name in NAMES if name.startswith("SUPPORT_"))


@pytest.mark.parametrize("method", SIGNATURES)
def test_signature(method: str) -> None:
    assert str(inspect.signature(getattr(TransferEngine, method))) == SIGNATURES[method]


def test_no_method_is_missing_from_the_table() -> None:
    public = {name for name in dir(TransferEngine) if not name.startswith("_") and name != "TransferOpcode"}
    assert public == set(SIGNATURES)


@pytest.mark.parametrize(
    "method", [name for name, text in SIGNATURES.items() if text.endswith(", /)") and text != "(self, /)"]
)
def test_positional_methods_take_no_keywords(method: str) -> None:
    names = SIGNATURES[method].removeprefix("(self, ").removesuffix(", /)").split(", ")
    with pytest.raises(TypeError):
        getattr(TransferEngine(), method)(**dict.fromkeys(names, 1))


def test_the_others_take_keywords(engine: TransferEngine) -> None:
    assert engine.register_memory(buffer_addr=1 << 20, capacity=0, location="cpu:0") == -1
    assert engine.send_probe(peer_server_name="127.0.0.1:1") == -102
    arguments = {"buffers": [], "peer_buffer_addresses": [], "lengths": [1]}
    assert engine.batch_transfer_sync_write(target_hostname="x", **arguments, transport_hint="tcp") == -1
    assert isinstance(engine.get_local_topology(device_name="mlx5_0,mlx5_1"), str)


def test_opcode_is_the_enum_that_callers_know() -> None:
    read, write = TransferOpcode.Read, TransferOpcode.Write
    assert (int(read), int(write)) == (0, 1)
    assert (read.name, write.name, read.value, write.value) == ("Read", "Write", 0, 1)
    assert TransferOpcode.__members__ == {"Read": read, "Write": write}
    assert mooncake.Read is read
    assert mooncake.Write is write
    assert TransferEngine.TransferOpcode is TransferOpcode
    assert write != 1
    assert not write == 1  # noqa: SIM201 (both operators have a method)
    assert write == TransferOpcode(1)
    assert read != write
    assert hash(write) == hash(TransferOpcode(1))
    assert str(write) == "TransferOpcode.Write"
    assert repr(read) == "<TransferOpcode.Read: 0>"
    assert TransferOpcode(5).name == "???"
    assert pickle.loads(pickle.dumps(write)) == write
    assert copy.deepcopy(read) == read


def test_opcode_has_no_order_and_no_bits() -> None:
    with pytest.raises(TypeError):
        TransferOpcode.Write > 0  # type: ignore[operator]  # noqa: B015
    with pytest.raises(TypeError):
        TransferOpcode.Read | TransferOpcode.Write  # type: ignore[operator]
    with pytest.raises(TypeError):
        TransferOpcode("Read")  # type: ignore[arg-type]


def test_notify() -> None:
    assert (TransferNotify().name, TransferNotify().msg) == ("", "")
    notify = TransferNotify(msg="m", name="n")
    notify.name = "other"
    assert (notify.name, notify.msg) == ("other", "m")
    with pytest.raises(TypeError):
        TransferNotify("n")
    with pytest.raises(TypeError):
        TransferNotify(1, 2)  # type: ignore[arg-type]
    with pytest.raises(UnicodeDecodeError):
        TransferNotify(b"\xff", "m").name  # noqa: B018


@pytest.mark.parametrize("name", ["InnerTransferEngine", "SharedSegment"])
def test_classes_without_constructor(name: str) -> None:
    with pytest.raises(TypeError):
        getattr(mooncake, name)()


def test_the_class_may_be_subclassed_and_has_no_surprising_attributes() -> None:
    class Mine(TransferEngine):
        pass

    assert isinstance(Mine().get_rpc_port(), int)
    assert not hasattr(TransferEngine(), "no_such_method")
