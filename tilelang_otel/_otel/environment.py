"""OpenTelemetry's own variables, checked before its SDK reads them.

Owns what is in force, and what the SDK shall see instead of values that would
make it raise, print a traceback, or print a secret. Which variables there are
is up to ``_otel.variables``; this package's own are up to ``_config``. Needs
neither the SDK nor the API, so that it can be asked before either is imported:
some of these variables are read by an ``import``.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Generator, Mapping, MutableMapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from tilelang_otel._otel.transport import mask_url, secrets_of
from tilelang_otel._otel.values import OTLP_EXPORTERS, Kind, installed_names, number, one_line
from tilelang_otel._otel.variables import COMMON, DEFAULT_QUEUE_SIZE, SIGNALS, otlp_variables

__all__ = ["OtelEnvironment", "OtlpTarget", "Problem", "read_environment"]

_SAMPLERS_WITH_RATIO: Final = ("traceidratio", "parentbased_traceidratio")

_lock = threading.RLock()


@dataclass(frozen=True)
class Problem:
    """Something wrong with a variable."""

    variable: str
    message: str
    """One line, which names the variable and what it accepts."""


@dataclass(frozen=True)
class OtlpTarget:
    """Where an OTLP exporter sends traces to."""

    protocol: str
    url: str
    """In full, with ``/v1/traces`` over HTTP. May hold credentials."""

    variable: str | None
    """The variable that says so; None for the default."""

    @property
    def shown(self) -> str:
        """The URL without what is secret."""
        return mask_url(self.url)


@dataclass(frozen=True)
class OtelEnvironment:
    """What the variables say, once what is wrong is put aside."""

    given: Mapping[str, str]
    """The environment as it is."""

    changes: Mapping[str, str | None]
    """What the SDK shall see instead; None means nothing."""

    problems: tuple[Problem, ...]

    def get(self, variable: str) -> str | None:
        """Return the value in force; None when there is none."""
        value = self.changes.get(variable, self.given.get(variable))
        return value if value and value.strip() else None

    @property
    def is_disabled(self) -> bool:
        """Whether ``OTEL_SDK_DISABLED`` switches everything off."""
        return self.get("OTEL_SDK_DISABLED") == "true"

    @property
    def has_endpoint(self) -> bool:
        """Whether somebody said where OTLP traces go."""
        names = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
        return any(self.get(name) for name in names)

    def exporters(self, signal: str = "traces", default: str = "none") -> tuple[str, ...]:
        """Return the names of a signal's exporters, as entry points.

        Args:
            signal: ``traces``, ``metrics`` or ``logs``.
            default: What an unset variable means.
        """
        names = (self.get(f"OTEL_{signal.upper()}_EXPORTER") or default).split(",")
        otlp = OTLP_EXPORTERS[self.protocol(signal)]
        found = (otlp if name == "otlp" else name for name in names if name != "none")
        return tuple(dict.fromkeys(found))

    def protocol(self, signal: str = "traces") -> str:
        """Return what ``otlp`` means for a signal: ``grpc`` or ``http/protobuf``."""
        named = (self.get(f"OTEL_{signal.upper()}_EXPORTER") or "").split(",")
        for protocol, exporter in OTLP_EXPORTERS.items():
            if exporter in named and "otlp" not in named:
                return protocol
        own = self.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL")
        return own or self.get("OTEL_EXPORTER_OTLP_PROTOCOL") or _installed_protocol(signal)

    def otlp_target(self, exporter: str) -> OtlpTarget | None:
        """Return where an exporter sends traces to; None if it does not speak OTLP."""
        if exporter not in OTLP_EXPORTERS.values():
            return None
        is_grpc = exporter == OTLP_EXPORTERS["grpc"]
        protocol = "grpc" if is_grpc else "http/protobuf"
        own, common = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"
        if url := self.get(own):
            return OtlpTarget(protocol, url, own)
        url = self.get(common)
        variable = common if url else None
        url = url or f"http://localhost:{4317 if is_grpc else 4318}"
        return OtlpTarget(protocol, url if is_grpc else f"{url.rstrip('/')}/v1/traces", variable)

    @cached_property
    def _secrets(self) -> list[str]:
        found = secrets_of(
            (text for name, text in self.given.items() if name.endswith("_HEADERS")),
            (text for name, text in self.given.items() if name.endswith("_ENDPOINT")),
        )
        return sorted(found, key=len, reverse=True)

    def mask(self, text: str) -> str:
        """Return ``text`` in one line, with headers' values and passwords blacked out."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return " ".join(text.split())

    @contextlib.contextmanager
    def applied(
        self, environ: MutableMapping[str, str] | None = None
    ) -> Generator[None, None, None]:
        """Let the SDK see what it shall see, while it configures itself.

        Args:
            environ: The environment to change and restore; None means the process's.
        """
        target = os.environ if environ is None else environ
        with _lock:
            before = {name: target.get(name) for name in self.changes}
            try:
                _assign(target, self.changes)
                yield
            finally:
                _assign(target, before)


def read_environment(environ: Mapping[str, str] | None = None) -> OtelEnvironment:
    """Check OpenTelemetry's variables. Never raises.

    Args:
        environ: The environment; None means the process's.

    Returns:
        What is in force, and what is wrong.
    """
    return _Reader(dict(os.environ if environ is None else environ)).read()


class _Reader:
    """Checks one environment."""

    def __init__(self, given: dict[str, str]) -> None:
        self._given = given
        self._changes: dict[str, str | None] = {}
        self._problems: list[Problem] = []

    def read(self) -> OtelEnvironment:
        self._check(COMMON)
        result = OtelEnvironment(self._given, self._changes, ())
        self._check_otlp("OTEL_EXPORTER_OTLP_", result.protocol())
        for signal in SIGNALS:
            if signal == "traces" or result.exporters(signal):
                prefix = f"OTEL_EXPORTER_OTLP_{signal.upper()}_"
                self._check_otlp(prefix, result.protocol(signal))
        self._check_ratio()
        self._check_batches("OTEL_BSP", DEFAULT_QUEUE_SIZE)
        self._check_batches("OTEL_BLRP", 2048)
        return OtelEnvironment(self._given, self._changes, tuple(self._problems))

    def _get(self, name: str) -> str | None:
        return self._changes.get(name, self._given.get(name))

    def _report(self, variable: str, shown: str, remark: str, accepts: str) -> None:
        value = f"={shown}" if shown else ""
        message = f"{variable}{value} {remark}: expected {accepts}"
        self._problems.append(Problem(variable, message))

    def _check(self, table: Mapping[str, Kind]) -> None:
        for name, kind in table.items():
            if name in self._given:
                self._check_one(name, kind)

    def _check_one(self, name: str, kind: Kind) -> None:
        text = self._given[name]
        if not text.strip():
            self._changes[name] = None
            return
        result = kind.check(text)
        if result.value != text:
            self._changes[name] = result.value
        if result.remark is not None:
            self._report(name, kind.show(text), result.remark, kind.accepts())

    def _check_otlp(self, prefix: str, protocol: str) -> None:
        wishes = {self._get(f"{start}INSECURE") for start in (prefix, "OTEL_EXPORTER_OTLP_")}
        is_insecure = any(wish and wish.strip().lower() == "true" for wish in wishes)
        self._check(otlp_variables(prefix, protocol == "grpc", is_insecure))

    def _check_ratio(self) -> None:
        name = "OTEL_TRACES_SAMPLER_ARG"
        if self._get("OTEL_TRACES_SAMPLER") not in _SAMPLERS_WITH_RATIO:
            return
        if name in self._given:
            self._check_one(name, number("1.0", most=1.0))
        if not self._get(name):
            self._changes[name] = "1.0"

    def _check_batches(self, prefix: str, default: int) -> None:
        """See to it that a batch fits into the queue, which the SDK insists on."""
        queue_name, batch_name = f"{prefix}_MAX_QUEUE_SIZE", f"{prefix}_MAX_EXPORT_BATCH_SIZE"
        queue, batch = self._get(queue_name), int(self._get(batch_name) or 512)
        if queue is None:
            self._changes[queue_name] = str(max(default, batch))
        elif int(queue) < batch:
            self._changes[batch_name] = queue
            remark = f"holds less than a batch; batches of {queue} are used"
            self._report(queue_name, one_line(queue), remark, f"at least {batch_name} ({batch})")


def _installed_protocol(signal: str) -> str:
    """Return the SDK's default, gRPC, unless only the other exporter is there."""
    names = installed_names(f"opentelemetry_{signal}_exporter")
    only_http = OTLP_EXPORTERS["http/protobuf"] in names and OTLP_EXPORTERS["grpc"] not in names
    return "http/protobuf" if only_http else "grpc"


def _assign(target: MutableMapping[str, str], values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            target.pop(name, None)
        else:
            target[name] = value
