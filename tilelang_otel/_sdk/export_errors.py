"""Why an export failed: what exporters say, and what that means for the user.

Owns listening to the exporters' loggers, which say more than their results and
say it again for every batch, and the table of what is usually wrong. Who is
told, and how often, is up to the callers.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Explanation", "explain", "listening", "mute"]

_KEPT: Final = 8


@dataclass(frozen=True)
class Explanation:
    """What is wrong, and what helps."""

    what: str
    advice: str
    is_final: bool = False
    """Whether trying again within seconds is of no use."""


_OTHER_PROTOCOL: Final = "set OTEL_EXPORTER_OTLP_PROTOCOL to what it speaks: grpc or http/protobuf"

# The first that fits counts. Patterns are for what gRPC, requests and urllib3 say.
_KNOWN: Final[Sequence[tuple[str, Explanation]]] = (
    (
        r"[Pp]roxyError|connect to proxy",
        Explanation(
            "the proxy of the environment cannot be reached",
            "add the host to NO_PROXY, or correct HTTP_PROXY or HTTPS_PROXY",
            is_final=True,
        ),
    ),
    (
        r"UNAUTHENTICATED|\b401\b",
        Explanation(
            "it wants other credentials (401)",
            "set OTEL_EXPORTER_OTLP_HEADERS to what it asks for, e.g. authorization=Bearer%20…",
        ),
    ),
    (
        r"PERMISSION_DENIED|\b403\b",
        Explanation("it refuses these credentials (403)", "check the headers and the account"),
    ),
    (
        r"UNIMPLEMENTED|\b404\b|\b405\b",
        Explanation(
            "nothing there takes OTLP traces (404)",
            "check the endpoint's path and port: 4317 is gRPC, 4318 is HTTP with /v1/traces",
        ),
    ),
    (
        r"RESOURCE_EXHAUSTED|\b413\b|larger than max",
        Explanation(
            "it takes no more, or none that large",
            "lower OTEL_BSP_MAX_EXPORT_BATCH_SIZE or raise the receiver's limits",
        ),
    ),
    (
        r"CERTIFICATE|[Cc]ertificate|SSL|ssl_|TLS|[Hh]andshake",
        Explanation(
            "TLS failed",
            "use http:// if it speaks plain text, else set OTEL_EXPORTER_OTLP_CERTIFICATE",
        ),
    ),
    (
        r"parsing HTTP/2|Expected SETTINGS|HTTP/0\.9|BadStatusLine|connect an http1",
        Explanation("it speaks another protocol", _OTHER_PROTOCOL, is_final=True),
    ),
    (
        r"RemoteDisconnected|[Cc]onnection aborted|Connection reset|[Ss]ocket closed|GOAWAY",
        Explanation("the connection broke, as with another protocol", _OTHER_PROTOCOL),
    ),
    (
        r"[Nn]ame or service not known|[Nn]ame resolution|NameResolution|getaddrinfo"
        r"|DNS|Domain name not found|[Nn]o address associated",
        Explanation("there is no such host", "check the host in the endpoint", is_final=True),
    ),
    (
        r"refused",
        Explanation(
            "connection refused", "start a receiver there, or correct the endpoint", is_final=True
        ),
    ),
    (
        r"DEADLINE_EXCEEDED|[Tt]imed out|Timeout|timeout",
        Explanation(
            "no answer in time",
            "check that it is up and speaks this protocol; OTEL_EXPORTER_OTLP_TIMEOUT (in "
            "seconds) gives it longer",
        ),
    ),
    (
        r"UNAVAILABLE|\b50[234]\b|Service Unavailable|Bad Gateway",
        Explanation("it is not available", "start a receiver there, or look into its log"),
    ),
)

_OTHER: Final = Explanation("", "look into the receiver's own log")


def explain(said: Sequence[str]) -> Explanation:
    """Return what exporters' messages mean.

    Args:
        said: What was logged or raised, in order, with nothing secret in it.
    """
    for message in reversed(said):
        for pattern, explanation in _KNOWN:
            # "due to timeout, max retries or shutdown" is said of everything.
            if re.search(pattern, message.replace("due to timeout", "")):
                return explanation
    what = said[-1][:160] if said else "the exporter does not say why"
    return Explanation(what, _OTHER.advice)


class _Listener(logging.Filter):
    """Takes what is logged in a thread that listens, and lets the rest pass.

    A filter of the loggers themselves, because what a logger lets pass goes to
    handlers that are the application's to choose.
    """

    def __init__(self, to: str) -> None:
        super().__init__()
        self._to = to
        self.thread = threading.local()
        self.is_mute = False

    def filter(self, record: logging.LogRecord) -> bool:
        said: list[str] | None = getattr(self.thread, "said", None)
        if said is not None:
            said.append(record.getMessage())
            del said[:-_KEPT]
        is_taken = said is not None or self.is_mute
        # Who debugs the exporters wants to see everything where it happens.
        return not is_taken or logging.getLogger(self._to).isEnabledFor(logging.DEBUG)

    def install(self) -> None:
        """Listen to every logger that there is by now."""
        loggers = logging.getLogger().manager.loggerDict
        names = [name for name in list(loggers) if f"{name}.".startswith(f"{self._to}.")]
        for name in (self._to, *names):
            # Adding what is there already does nothing.
            logging.getLogger(name).addFilter(self)


_listeners: dict[str, _Listener] = {}


@contextlib.contextmanager
def listening(said: list[str], to: str = "opentelemetry.exporter") -> Generator[None, None, None]:
    """Collect what is logged in this thread, instead of showing it.

    Args:
        said: Where messages are appended; they may hold secrets. Only the last
            few are kept.
        to: The logger that is listened to, with those below it that exist by now.
    """
    listener = _listeners.setdefault(to, _Listener(to))
    listener.install()
    before = getattr(listener.thread, "said", None)
    listener.thread.said = said
    try:
        yield
    finally:
        listener.thread.said = before


def mute(to: str) -> None:
    """Show nothing of what is logged below the logger ``to`` from now on, in any thread."""
    listener = _listeners.setdefault(to, _Listener(to))
    listener.is_mute = True
    listener.install()
