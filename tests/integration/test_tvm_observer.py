"""The observer put into real pass contexts by hand: trees, failures, threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.broken import BROKEN_CALLS, BrokenProvider
from tests.support.require import require_tvm
from tests.support.spans import SpanMemory, assert_sound, outline, trees
from tests.support.tvm_modules import compile_mlp, empty_module, python_pass, raising, tolerant

require_tvm()

from tvm.ir import transform  # noqa: E402

from tilelang_otel import OTelPassObserver  # noqa: E402
from tilelang_otel.events import (  # noqa: E402
    PassEvent,
    PassEventObserver,
    StackedPassInstrument,
)


def _identity(name: str = "Id") -> Any:
    return python_pass(name, lambda mod: mod)


def _context(memory: SpanMemory, **options: Any) -> Any:
    observer = OTelPassObserver(memory.provider, **options)
    return transform.PassContext(instruments=[StackedPassInstrument(observer)])


def test_compile_by_hand_gives_every_pass_that_ran_in_its_place(memory: SpanMemory) -> None:
    """As many spans, in the same nesting, as a plain instrument counts callbacks."""
    counted: list[tuple[str, int]] = []

    class Count(PassEventObserver):
        def pass_started(self, mod: Any, event: PassEvent) -> Any:
            counted.append((event.name, event.depth))

    observer = OTelPassObserver(memory.provider)
    instruments = [StackedPassInstrument(Count()), StackedPassInstrument(observer)]
    with transform.PassContext(opt_level=3, instruments=instruments):
        compile_mlp()
    [root] = trees(memory.spans, "tvm.pass.depth")
    found: list[tuple[str, int]] = []

    def walk(tree: Any, depth: int) -> None:
        for child in tree.children:
            assert child.attributes["tvm.pass.depth"] == depth
            found.append((child.name, depth))
            walk(child, depth + 1)

    walk(root, 0)
    assert root.name == "PassContext"
    assert len(counted) > 50
    assert found == counted
    assert_sound(memory.spans)


def test_sequence_and_nested_python_passes_become_a_tree(memory: SpanMemory) -> None:
    """A sequence's passes are inside it, and so is what a Python pass calls."""
    outer = python_pass("Outer", _identity("Inner"))
    both = transform.Sequential([_identity("A"), outer], name="Seq")
    with _context(memory):
        both(empty_module())
    assert outline(memory.spans, "tvm.pass.sequence", "tvm.pass.parent_sequence") == [
        "PassContext",
        "  Seq 0",
        "    A 1 0",
        "    Outer 2 0",
        "      Inner 3 2",
    ]


# -- failures ---------------------------------------------------------------------------


def test_failure_that_leaves_is_recorded_once_on_the_deepest_pass(memory: SpanMemory) -> None:
    """The program gets its exception, the ancestors say where it came from."""
    both = transform.Sequential([_identity(), raising("Boom", ValueError("boom"))], name="Seq")
    with pytest.raises(ValueError, match="boom"), _context(memory):
        both(empty_module())
    assert outline(memory.spans, "error.type", "tvm.pass.incomplete") == [
        "PassContext! ValueError",
        "  Seq! ValueError True",
        "    Id",
        "    Boom!* ValueError True",
    ]
    assert memory.named("Boom").status.description == "boom"
    assert memory.named("Seq").status.description == "failed in Boom"
    assert_sound(memory.spans)


def test_pass_that_tolerates_a_failure_has_no_error(memory: SpanMemory) -> None:
    """Only the failed pass is an error; the tolerant parent and later passes are not."""
    tol = tolerant("Tol", raising("Boom", ValueError("boom")), _identity())
    with _context(memory):
        tol(empty_module())
        _identity()(empty_module())
        tolerant("Last", raising("Boom", ValueError("boom")))(empty_module())
    assert outline(memory.spans) == [
        "PassContext",
        "  Tol",
        "    Boom!",
        "    Id",
        "  Id",
        "  Last",
        "    Boom!",
    ]
    assert_sound(memory.spans)


def test_failure_that_the_program_catches_hides_no_later_pass(memory: SpanMemory) -> None:
    """Try a lowering, catch its failure, continue in the same context."""
    with _context(memory):
        for _ in range(2):
            with pytest.raises(ValueError, match="boom"):
                raising("Boom", ValueError("boom"))(empty_module())
        _identity()(empty_module())
        _identity()(empty_module())
    assert outline(memory.spans) == ["PassContext", "  Boom!", "  Boom!", "  Id", "  Id"]
    assert memory.spans[0].end_time is not None
    assert_sound(memory.spans)


def test_pass_that_calls_itself_and_catches_the_failure_has_no_error(memory: SpanMemory) -> None:
    """Names alone cannot tell the two calls apart."""
    calls: list[int] = []

    def body(mod: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            with pytest.raises(ValueError, match="inner"):
                recursive(mod)
            return mod
        raise ValueError("inner")

    recursive = python_pass("R", body)
    with _context(memory):
        recursive(empty_module())
        _identity()(empty_module())
    assert outline(memory.spans) == ["PassContext", "  R", "    R!", "  Id"]
    assert_sound(memory.spans)


class KernelError(Exception):
    """An exception whose constructor TVM cannot guess."""

    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SystemExit(3), "3"),
        (lambda: KernelError(code=7), "code 7"),
        (lambda: asyncio.CancelledError("stop"), "stop"),
        (lambda: ValueError("bad"), "bad"),
        (lambda: MemoryError("full"), "full"),
    ],
)
def test_error_type_is_the_one_that_the_program_received(
    make: Callable[[], BaseException], message: str, memory: SpanMemory
) -> None:
    """TVM changes some exceptions on the way: the span says what came out, once."""
    outer = python_pass("Outer", raising("Boom", make))
    with pytest.raises(BaseException, match=message) as caught, _context(memory):
        outer(empty_module())
    kind = type(caught.value).__name__
    assert outline(memory.spans, "error.type") == [
        f"PassContext! {kind}",
        f"  Outer! {kind}",
        f"    Boom!* {kind}",
    ]
    assert memory.named("Boom").status.description == message


@pytest.mark.usefixtures("swallowing")
@pytest.mark.parametrize("call", BROKEN_CALLS)
def test_broken_provider_changes_neither_result_nor_exception(
    call: str, memory: SpanMemory
) -> None:
    """The user's error is not replaced, and the context keeps its instruments."""
    provider = BrokenProvider(memory.provider, call)
    instrument = StackedPassInstrument(OTelPassObserver(provider))
    context: Any = transform.PassContext(instruments=[instrument])
    mod = empty_module()
    for _ in range(2):
        with context:
            assert _identity()(mod).same_as(mod)
        with pytest.raises(ValueError, match=r"^boom$") as caught, context:
            raising("Boom", ValueError("boom"))(mod)
        assert caught.value.__context__ is None
        assert len(context.instruments) == 1
