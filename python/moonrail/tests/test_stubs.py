"""The stubs and annotations say what is there."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path
from typing import Any

import moonrail
import pytest
from moonrail import _moonrail

STUB = Path(moonrail.__file__).with_name("_moonrail.pyi")
TREE = ast.parse(STUB.read_text())
CLASSES = {node.name: node for node in TREE.body if isinstance(node, ast.ClassDef) and hasattr(_moonrail, node.name)}
MODULES = [
    "moonrail",
    "moonrail.engine",
    "moonrail.errors",
    "moonrail.memory",
    "moonrail.peer",
    "moonrail.mooncake",
    "moonrail.rpc",
    "moonrail.serving",
    "moonrail._capabilities",
]


def members(node: ast.ClassDef) -> dict[str, ast.AST]:
    found: dict[str, ast.AST] = {}
    for item in node.body:
        if isinstance(item, ast.FunctionDef):
            found[item.name] = item
        elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            found[item.target.id] = item
    return found


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_every_name_of_the_extension_has_a_stub() -> None:
    runtime = {name for name in vars(_moonrail) if not name.startswith("_")}
    described = set()
    for item in TREE.body:
        if isinstance(item, (ast.ClassDef, ast.FunctionDef)):
            described.add(item.name)
        elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            described.add(item.target.id)
    assert runtime == {name for name in described - {"Options"} if not name.startswith("_")}


@pytest.mark.parametrize("name", CLASSES)
def test_classes_have_the_members_of_their_stubs(name: str) -> None:
    described = {member for member in members(CLASSES[name]) if not member.startswith("__")}
    assert public(getattr(_moonrail, name)) == described


@pytest.mark.parametrize("name", CLASSES)
def test_methods_have_the_parameters_of_their_stubs(name: str) -> None:
    kind = getattr(_moonrail, name)
    for member, node in members(CLASSES[name]).items():
        if not isinstance(node, ast.FunctionDef) or member.startswith("__"):
            continue
        if node.decorator_list:
            assert not callable(getattr(kind, member)), f"{member} is a property"
            continue
        parameters = list(inspect.signature(getattr(kind, member)).parameters.values())
        arguments = [*node.args.posonlyargs, *node.args.args]
        assert [p.name for p in parameters] == [a.arg for a in arguments], member
        without_default = len(arguments) - len(node.args.defaults)
        assert [p.default is p.empty for p in parameters] == [i < without_default for i in range(len(arguments))], (
            member
        )
        if node.args.posonlyargs:
            assert all(p.kind is p.POSITIONAL_ONLY for p in parameters), member


@pytest.mark.parametrize("module", MODULES)
def test_everything_public_is_documented(module: str) -> None:
    loaded: Any = importlib.import_module(module)
    assert loaded.__doc__
    missing = []
    for name in loaded.__all__:
        thing = getattr(loaded, name)
        if not inspect.isclass(thing) and not inspect.isroutine(thing):
            continue
        if not thing.__doc__:
            missing.append(name)
        if inspect.isclass(thing) and thing.__module__.startswith("moonrail"):
            own = {n for n, value in vars(thing).items() if not n.startswith("_") and inspect.isroutine(value)}
            missing += [f"{name}.{n}" for n in own if not getattr(thing, n).__doc__]
    assert missing == []


def test_the_package_is_marked_as_typed() -> None:
    assert STUB.with_name("py.typed").exists()
