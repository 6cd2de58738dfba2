"""The calls that serving frameworks make on an engine, read from their files. Nothing of theirs is imported."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import os
from collections.abc import Iterator
from typing import Any

FRAMEWORKS = {
    "sglang": "SGLang",
    "vllm": "vLLM",
    "lmcache": "LMCache",
    "vllm_ascend": "vllm-ascend",
    "checkpoint_engine": "checkpoint-engine",
    "sglang_omni": "sglang-omni",
    "flexkv": "FlexKV",
}
"""Packages that drive an engine, and what people call them."""

KNOWN = {
    "sglang": {
        "srt/distributed/device_communicators/mooncake_transfer_engine.py": [
            "initialize", "get_rpc_port", "register_memory", "unregister_memory", "batch_register_memory",
            "batch_unregister_memory", "transfer_sync_write", "batch_transfer_sync_write", "send_probe", "get_engine",
        ],
        "srt/elastic_ep/expert_backup_client.py": ["register_memory", "batch_transfer_sync_read"],
        "srt/elastic_ep/expert_backup_manager.py": ["register_memory"],
        "srt/model_loader/loader.py": ["batch_transfer_sync_read"],
        "srt/model_loader/remote_instance_weight_loader_utils.py": ["register_memory"],
    },
    "vllm": {
        "distributed/kv_transfer/kv_connector/v1/mooncake/mooncake_connector.py": [
            "initialize", "get_rpc_port", "batch_register_memory", "batch_transfer_sync_write",
        ],
        "distributed/ec_transfer/ec_connector/mooncake/transfer.py": [
            "initialize", "get_rpc_port", "batch_register_memory", "batch_unregister_memory", "unregister_memory",
            "batch_transfer_sync_write",
        ],
    },
    "lmcache": {
        "v1/distributed/transfer_channel/impl/mooncake_te_impl.py": [
            "initialize", "get_rpc_port", "register_memory", "unregister_memory", "batch_transfer_async_read",
            "transfer_check_status",
        ],
    },
}  # fmt: skip
"""Files that drive an engine, often one that was made elsewhere, and what they call: read where the file cannot be."""

OTHER_ENGINES = {"ascend", "mori", "nixl", "test", "tests"}
"""Folders whose `engine.register_memory()` is another library's, or no production code."""


def framework(name: str, methods: set[str]) -> Iterator[dict[str, Any]]:
    """The calls that an installed framework makes on an engine. It is read, not imported."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return
    if spec is None or not spec.submodule_search_locations:
        return
    calls: list[dict[str, Any]] = []
    imports: list[dict[str, Any]] = []
    unread: list[str] = []
    root = next(iter(spec.submodule_search_locations))
    known = KNOWN.get(name, {})
    for path in sources(root):
        inside = os.path.relpath(path, root)
        listed = known.get(inside.replace(os.sep, "/"))
        try:
            with open(path, "rb") as file:
                text = file.read()
            if listed is None and b"mooncake" not in text:
                continue
            reader = Reader(ast.parse(text), inside, methods, {*inside.split(os.sep)} & OTHER_ENGINES == set())
        except (OSError, SyntaxError, ValueError, RecursionError):
            if listed is not None:
                unread.append(inside)
                calls += [{"method": method, "file": inside, "line": 0, "raises": None} for method in listed]
            continue
        calls += reader.calls
        imports += reader.imports
    if calls or imports:
        yield {
            "name": name,
            "title": FRAMEWORKS[name],
            "version": version_of(name),
            "location": root,
            "calls": calls,
            "imports": imports,
            "unread": unread,
        }


def sources(root: str) -> Iterator[str]:
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(one for one in folders if one != "__pycache__")
        yield from (os.path.join(folder, name) for name in sorted(files) if name.endswith(".py"))


def version_of(name: str) -> str | None:
    for distribution in (name, name.replace("_", "-")):
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


class Reader(ast.NodeVisitor):
    """The engine calls of one file.

    An engine is what is made by calling `TransferEngine` of `mooncake.engine`, under whatever name it is kept; and, where
    `loose`, anything called an engine on which a method is called that only such engines have.
    """

    def __init__(self, tree: ast.Module, file: str, methods: set[str], loose: bool) -> None:
        self.calls: list[dict[str, Any]] = []
        self.imports: list[dict[str, Any]] = []
        self._file = file
        self._methods = methods
        self._loose = loose
        self._classes: set[str] = set()
        self._engines: set[str] = set()
        self._functions: list[ast.AST] = []
        self._refusals = dict(refusals(tree))
        for node in ast.walk(tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self._imported(node)
        for node in ast.walk(tree):
            if not isinstance(node, (ast.Assign, ast.AnnAssign)) or not isinstance(node.value, ast.Call):
                continue
            if dotted(node.value.func) in self._classes:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                self._engines |= {name for name in map(dotted, targets) if name}
        self.visit(tree)

    def _imported(self, node: Any) -> None:
        if isinstance(node, ast.ImportFrom):
            module, names = node.module or "", [alias.name for alias in node.names]
            if module == "mooncake.engine":
                self._classes |= {alias.asname or alias.name for alias in node.names if alias.name == "TransferEngine"}
            if module == "mooncake":
                self._classes |= {f"{a.asname or a.name}.TransferEngine" for a in node.names if a.name == "engine"}
            if module.split(".")[0] == "mooncake" and node.level == 0:
                self._note(module, names, node.lineno)
            return
        for alias in node.names:
            if alias.name.split(".")[0] == "mooncake":
                self._classes.add(f"{alias.asname or alias.name}.TransferEngine")
                self._note(alias.name, [], node.lineno)

    def _note(self, module: str, names: list[str], line: int) -> None:
        raises = self._refusals.get(line)
        self.imports.append({"module": module, "names": names, "file": self._file, "line": line, "raises": raises})

    def _inside(self, node: ast.AST) -> None:
        self._functions.append(node)
        self.generic_visit(node)
        self._functions.pop()

    visit_FunctionDef = _inside
    visit_AsyncFunctionDef = _inside

    def visit_Call(self, node: ast.Call) -> None:
        """Notes a call of a method of an engine."""
        if isinstance(node.func, ast.Attribute):
            receiver, method = dotted(node.func.value), node.func.attr
            is_engine = receiver in self._engines
            if not is_engine and self._loose and receiver and method in self._methods - {"initialize", "transfer_sync"}:
                # Wrappers have a batch_transfer_sync, send_probe and get_engine of their own.
                own = method.endswith(("_memory", "_read", "_write", "_status", "_notifies"))
                is_engine = own and "engine" in receiver.split(".")[-1].lower()
            if is_engine:
                raises = self._guard(receiver, method)
                self.calls.append({"method": method, "file": self._file, "line": node.lineno, "raises": raises})
        self.generic_visit(node)

    def _guard(self, receiver: str | None, method: str) -> str | None:
        """What the function raises where the engine has no such method, if it looks."""
        for node in ast.walk(self._functions[-1]) if self._functions else ():
            if not isinstance(node, ast.If) or not isinstance(node.test, ast.UnaryOp):
                continue
            test = node.test.operand
            if not isinstance(test, ast.Call) or dotted(test.func) != "hasattr" or len(test.args) != 2:
                continue
            if dotted(test.args[0]) != receiver or not is_text(test.args[1], method):
                continue
            for statement in node.body:
                if text := raised(statement):
                    return text
        return None


def refusals(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The lines of imports that a `try` guards, and what it raises where one fails."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Try):
            continue
        told = [text for handler in node.handlers for statement in handler.body if (text := raised(statement))]
        for statement in node.body:
            if told and isinstance(statement, (ast.Import, ast.ImportFrom)):
                yield statement.lineno, told[0]


def raised(statement: ast.stmt) -> str | None:
    """`RuntimeError: text` of a statement that raises such."""
    if isinstance(statement, ast.Raise) and isinstance(statement.exc, ast.Call) and statement.exc.args:
        text = statement.exc.args[0]
        if isinstance(text, ast.Constant) and isinstance(text.value, str):
            return f"{dotted(statement.exc.func)}: {text.value}"
    return None


def dotted(node: ast.AST | None) -> str | None:
    """`self.engine` as text; None for what is no name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        left = dotted(node.value)
        return f"{left}.{node.attr}" if left else None
    return None


def is_text(node: ast.AST, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text
