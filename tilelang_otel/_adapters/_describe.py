"""Names and attributes of what TVM compiles, read without changing it.

Everything here is given whatever the caller passed, so nothing is assumed of it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, cast

from tilelang_otel import semconv
from tilelang_otel._guard import guard
from tilelang_otel._scrub import attribute_value, clean_kernel_name, clean_name

__all__ = ["function_name", "kernel_attributes", "shapes_of", "target_attributes"]

_MAX_SHAPES = 16
_MAX_DIMENSIONS = 16


def function_name(mod: Any) -> str | None:
    """Return the name of the function that a module or function is about.

    Args:
        mod: A module or a function.

    Returns:
        The function's own name; for a module with several functions, that of its
        only Relax function, else ``main`` if there is one; None when it can't be told.
    """
    with guard:
        attrs = getattr(mod, "attrs", None)
        functions = getattr(mod, "functions", None)
        if functions is None:
            symbol = attrs.get("global_symbol") if attrs else None
            return None if symbol is None else clean_name(str(symbol))
        names = [str(var.name_hint) for var in mod.get_global_vars()]
        if len(names) > 1:
            relax = [name for name in names if _is_relax(mod[name])]
            names = relax if len(relax) == 1 else [name for name in names if name == "main"]
        return clean_name(names[0]) if len(names) == 1 else None
    return None


def kernel_attributes(func: Any) -> dict[str, Any]:
    """Return what spans say about a kernel: its name, without a grouped compile's suffix.

    Args:
        func: A function, a module, or a kernel's name.
    """
    symbol = clean_name(func) if isinstance(func, str) else function_name(func)
    if symbol is None:
        return {}
    name = clean_kernel_name(symbol)
    attributes = {semconv.TILELANG_KERNEL_NAME: name}
    if name != symbol:
        attributes[semconv.TILELANG_KERNEL_SYMBOL] = symbol
    return attributes


def target_attributes(target: Any) -> dict[str, Any]:
    """Return what spans say about a target.

    Args:
        target: A target, or what TVM makes one of: a string or a dict. None
            means the target that is in scope.

    Returns:
        The kind and, where the target names it, the architecture.
    """
    attributes: dict[str, Any] = {}
    kind: Any = None
    arch: Any = None
    with guard:
        if target is None:
            module = sys.modules.get("tvm.target")
            target = module.Target.current() if module is not None else None
        if isinstance(target, str):
            kind = target.split(maxsplit=1)[0] if target.strip() else None
        elif isinstance(target, Mapping):
            fields = cast("Mapping[str, Any]", target)
            kind, arch = fields.get("kind"), fields.get("arch")
        else:
            kind = getattr(getattr(target, "kind", None), "name", None)
            attrs = getattr(target, "attrs", None)
            arch = attrs.get("arch") if attrs else None
        if kind is not None:
            attributes[semconv.TVM_TARGET_KIND] = attribute_value(str(kind))
        if arch is not None:
            attributes[semconv.TVM_TARGET_ARCH] = attribute_value(str(arch))
    return attributes


def shapes_of(mod: Any) -> str:
    """Return what a function is compiled for, e.g. ``A 64x128 float32, B 64x128 float32``.

    Args:
        mod: A function, or a module whose function can be told.

    Returns:
        The shapes of its parameters; empty when they can't be told.
    """
    with guard:
        if getattr(mod, "functions", None) is not None:
            name = function_name(mod)
            mod = None if name is None else mod[name]
        params = list(getattr(mod, "params", None) or ())
        buffers = getattr(mod, "buffer_map", None)
        told = [_shape_of(param, buffers) for param in params[:_MAX_SHAPES]]
        more = ["…"] if len(params) > _MAX_SHAPES else []
        return ", ".join([shape for shape in told if shape] + more)
    return ""


def _shape_of(param: Any, buffers: Any) -> str:
    """Return name, shape and type of a parameter; empty for one without a shape."""
    # A buffer stands beside the parameter, up to TVM 0.26; a Relax variable has a
    # type that tells, called struct_info up to then; else the parameter is a buffer.
    if buffers is not None:
        tensor = buffers.get(param, None)
    else:
        tensor = next(
            (
                found
                for found in (getattr(param, field, None) for field in ("struct_info", "ty"))
                if getattr(found, "shape", None) is not None
            ),
            param,
        )
    shape = getattr(tensor, "shape", None)
    if shape is None:
        return ""
    # A dimension is a number, one of TVM's, or an expression.
    sizes = [getattr(size, "value", size) for size in list(getattr(shape, "values", shape))]
    dimensions = [clean_name(str(size)) for size in sizes]
    names = (getattr(tensor, "name", ""), *(getattr(param, f, "") for f in ("name", "name_hint")))
    name = next((name for name in names if isinstance(name, str) and name), "")
    words = (name, "x".join(dimensions[:_MAX_DIMENSIONS]), str(getattr(tensor, "dtype", "")))
    return clean_name(" ".join(word for word in words if word))


def _is_relax(function: Any) -> bool:
    return type(function).__module__.startswith("tvm.relax")
