"""Nothing yet."""


def install() -> None: ...
