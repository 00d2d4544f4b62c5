"""Zero-code tracing of TVM keeps nothing: no module, no span, no context, no growth."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider, sampling

import tilelang_otel
from tests.support.memory import resident_bytes
from tests.support.require import require_tvm
from tests.support.tvm_modules import compile_mlp, empty_module, python_pass, raising, scaling

require_tvm()

from tvm import tirx  # noqa: E402
from tvm.ir import transform  # noqa: E402

from tilelang_otel.events import _entered  # noqa: E402

_LLVM: Any = "llvm"


@pytest.fixture(autouse=True)
def uninstrumented_afterwards() -> Iterator[None]:
    """Take tracing off, whatever the test did."""
    yield
    tilelang_otel.uninstrument()


def test_five_compiles_leave_nothing_alive() -> None:
    """What passes were given and what they raised dies with the compile."""
    tilelang_otel.instrument(TracerProvider(shutdown_on_exit=False))
    finalized: list[str] = []

    class Mark:
        pass

    def marked(mod: Any) -> Any:
        mark = Mark()
        weakref.finalize(mark, finalized.append, "local")
        return mod

    def fail() -> BaseException:
        error = ValueError("boom")
        mark = Mark()
        weakref.finalize(mark, finalized.append, "error")
        error.args = ("boom", mark)
        return error

    def compile_() -> None:
        with transform.PassContext():
            python_pass("Marked", marked)(empty_module())
            tirx.build(scaling(), target=_LLVM)
        with pytest.raises(ValueError, match="boom"):
            raising("Boom", fail)(empty_module())

    for _ in range(5):
        compile_()
        gc.collect()
    assert sorted(finalized) == ["error"] * 5 + ["local"] * 5


@pytest.mark.parametrize("sampler", [sampling.ALWAYS_ON, sampling.ALWAYS_OFF])
def test_memory_stays_flat_over_hundreds_of_compiles(sampler: sampling.Sampler) -> None:
    """In explicit contexts and in the default one, as well as without any tracing."""

    def compile_(times: int) -> None:
        for _ in range(times):
            with transform.PassContext(opt_level=1):
                simple(mod)
            simple(mod)

    simple = transform.Sequential([python_pass("Id", lambda mod: mod)], name="Seq")
    mod = empty_module()
    tilelang_otel.instrument(TracerProvider(sampler=sampler, shutdown_on_exit=False))
    compile_(300)
    gc.collect()
    objects = len(gc.get_objects())
    sizes_bytes = [resident_bytes()]
    for _ in range(4):
        compile_(150)
        gc.collect()
        sizes_bytes.append(resident_bytes())
    assert len(gc.get_objects()) - objects < 500
    # A leak is in each of them; what an allocator takes once, for whatever, is not.
    growths_bytes = [after - before for before, after in itertools.pairwise(sizes_bytes)]
    assert min(growths_bytes) < 1 << 20, growths_bytes


def test_compile_leaves_no_context_entered_and_the_default_one_empty() -> None:
    """Nor does one that fails."""
    tilelang_otel.instrument(TracerProvider(shutdown_on_exit=False))
    compile_mlp()
    with pytest.raises(ValueError, match="boom"):
        raising("Boom", lambda: ValueError("boom"))(empty_module())
    assert not _entered.is_context_entered()
    assert len(transform.PassContext.current().instruments) == 0
