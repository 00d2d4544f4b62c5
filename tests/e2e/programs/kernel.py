"""What a user of TileLang writes: a kernel, compiled for this CPU. Knows of no tracing."""

import tilelang
import tilelang.language as T  # noqa: N812 - as every TileLang program has it

tilelang.disable_cache()


def addition(n: int = 1024, dtype: str = "float32"):
    """Return a kernel that adds two vectors."""

    @T.prim_func
    def add(a: T.Tensor((n,), dtype), b: T.Tensor((n,), dtype), c: T.Tensor((n,), dtype)):
        with T.Kernel(1) as _:
            for i in T.serial(n):
                c[i] = a[i] + b[i]

    return add


tilelang.compile(addition(), target="c", execution_backend="cython")
print("compiled")
