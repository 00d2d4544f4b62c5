"""A real OTLP receiver in the test process, and receivers that misbehave.

Owns the two transports, gRPC and HTTP/protobuf, what is answered to a request,
and waiting for what arrives. ``received`` turns messages into plain spans;
which program sends them is up to the test::

    with OTLPReceiver("grpc") as receiver:
        run_program(environment=receiver.environment())
        [span] = receiver.wait_for(1)

A receiver listens on a free port of 127.0.0.1, and leaves no thread and no
socket behind.
"""

from __future__ import annotations

import gzip
import http.server
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal

import grpc  # pyright: ignore[reportMissingTypeStubs]
from google.rpc.code_pb2 import Code
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2  # pyright: ignore[reportMissingTypeStubs]  # fmt: skip
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from tests.support.received import ReceivedSpan, spans_of

__all__ = [
    "PROTOCOLS",
    "Answers",
    "OTLPReceiver",
    "Protocol",
    "ReceivedRequest",
    "RefusingEndpoint",
    "SilentEndpoint",
    "endpoint_environment",
]

Protocol = Literal["grpc", "http/protobuf"]

PROTOCOLS: tuple[Protocol, ...] = ("grpc", "http/protobuf")
"""Every protocol, to parametrise with."""

_SERVICES: dict[str, tuple[str, str, Any, Any]] = {
    "traces": (
        "opentelemetry.proto.collector.trace.v1.TraceService",
        "/v1/traces",
        trace_service_pb2.ExportTraceServiceRequest,
        trace_service_pb2.ExportTraceServiceResponse,
    ),
    "metrics": (
        "opentelemetry.proto.collector.metrics.v1.MetricsService",
        "/v1/metrics",
        metrics_service_pb2.ExportMetricsServiceRequest,
        metrics_service_pb2.ExportMetricsServiceResponse,
    ),
    "logs": (
        "opentelemetry.proto.collector.logs.v1.LogsService",
        "/v1/logs",
        logs_service_pb2.ExportLogsServiceRequest,
        logs_service_pb2.ExportLogsServiceResponse,
    ),
}

_UNAVAILABLE = int(Code.UNAVAILABLE)
_UNAUTHENTICATED = int(Code.UNAUTHENTICATED)
_HTTP_STATUS: dict[int, int] = {_UNAVAILABLE: 503, _UNAUTHENTICATED: 401}


@dataclass(frozen=True)
class Answers:
    """How a receiver answers."""

    failures: int = 0
    """How many requests get 503 or UNAVAILABLE before the first that is accepted."""

    delay_s: float = 0.0
    """How long each answer takes, in seconds. Closing the receiver ends it."""

    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers (lower-case names) without which a request gets 401 or UNAUTHENTICATED."""


@dataclass(frozen=True)
class ReceivedRequest:
    """One request that was accepted."""

    signal: str
    """``traces``, ``metrics`` or ``logs``."""

    headers: dict[str, str]
    """Headers or gRPC metadata; names in lower case."""

    message: Any
    """The decoded protobuf message."""

    spans: tuple[ReceivedSpan, ...] = ()


class OTLPReceiver:
    """Receives OTLP over one protocol; a context manager.

    Args:
        protocol: ``grpc`` or ``http/protobuf`` (gzip and deflate are understood).
        answers: How it answers; by default it accepts everything at once.
        certificate: Paths of a certificate and its key in PEM, to serve TLS.
    """

    def __init__(
        self,
        protocol: Protocol = "grpc",
        answers: Answers | None = None,
        certificate: tuple[str, str] | None = None,
    ) -> None:
        self.protocol: Protocol = protocol
        self.answers = answers or Answers()
        self._certificate = certificate
        self._arrival = threading.Condition()
        self._requests: list[ReceivedRequest] = []
        self._attempts = 0
        self._is_closing = threading.Event()
        if protocol == "grpc":
            self._port, self._stop = self._serve_grpc()
        else:
            self._port, self._stop = self._serve_http()

    def __enter__(self) -> OTLPReceiver:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening, and end what is being answered."""
        self._is_closing.set()
        self._stop()

    @property
    def endpoint(self) -> str:
        """What ``OTEL_EXPORTER_OTLP_ENDPOINT`` is set to."""
        return f"http{'s' if self._certificate else ''}://127.0.0.1:{self._port}"

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._port}"

    def environment(self) -> dict[str, str]:
        """Return the variables that make an exporter send here."""
        return endpoint_environment(self.protocol, self.endpoint)

    @property
    def requests(self) -> list[ReceivedRequest]:
        """What was accepted so far, in order of arrival."""
        with self._arrival:
            return list(self._requests)

    @property
    def attempts(self) -> int:
        """How many requests came, accepted or not."""
        with self._arrival:
            return self._attempts

    @property
    def spans(self) -> list[ReceivedSpan]:
        """Every span that was accepted so far."""
        return [span for request in self.requests for span in request.spans]

    def wait_for(
        self,
        count: int = 1,
        timeout_s: float = 10.0,
        where: Callable[[ReceivedSpan], bool] | None = None,
        what: str = "spans",
    ) -> list[ReceivedSpan]:
        """Wait until spans are here.

        Args:
            count: How many, at least.
            timeout_s: How many seconds to wait for them.
            where: Which spans count; by default all do.
            what: What they are, for the message.

        Returns:
            All that are here by then.

        Raises:
            AssertionError: They did not come. Says what did.
        """
        deadline_s = time.monotonic() + timeout_s
        while True:
            with self._arrival:
                seen = len(self._requests)
            spans = [span for span in self.spans if where is None or where(span)]
            if len(spans) >= count:
                return spans
            with self._arrival:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    names = sorted({span.name for span in self._all()})
                    raise AssertionError(
                        f"waited {timeout_s} s for {count} {what} over {self.protocol}, got "
                        f"{len(spans)}; {self._attempts} requests came, with {names[:20]}"
                    )
                if len(self._requests) == seen:
                    self._arrival.wait(left_s)

    def _all(self) -> Iterable[ReceivedSpan]:
        return (span for request in self._requests for span in request.spans)

    def _receive(self, signal: str, headers: dict[str, str], body: bytes) -> int:
        """Take one request in; return a status code of gRPC, 0 for accepted."""
        with self._arrival:
            self._attempts += 1
            attempt = self._attempts
        if self.answers.delay_s:
            self._is_closing.wait(self.answers.delay_s)
        if any(headers.get(name) != value for name, value in self.answers.headers.items()):
            return _UNAUTHENTICATED
        if attempt <= self.answers.failures:
            return _UNAVAILABLE
        message = _SERVICES[signal][2].FromString(body)
        spans = tuple(spans_of(message)) if signal == "traces" else ()
        with self._arrival:
            self._requests.append(ReceivedRequest(signal, headers, message, spans))
            self._arrival.notify_all()
        return 0

    def _serve_grpc(self) -> tuple[int, Callable[[], None]]:
        library: Any = grpc
        codes = {code.value[0]: code for code in library.StatusCode}
        pool = ThreadPoolExecutor(8, thread_name_prefix="otlp-receiver")
        server = library.server(pool, options=[("grpc.so_reuseport", 0)])

        def export_to(signal: str) -> Callable[[bytes, Any], Any]:
            def export(body: bytes, context: Any) -> Any:
                headers = {pair.key: pair.value for pair in context.invocation_metadata()}
                status = self._receive(signal, headers, body)
                if status:
                    context.abort(codes[status], "the receiver was told to say so")
                return _SERVICES[signal][3]()

            return export

        for signal, (service, _, _, response) in _SERVICES.items():
            method = library.unary_unary_rpc_method_handler(
                export_to(signal), response_serializer=response.SerializeToString
            )
            handler = library.method_handlers_generic_handler(service, {"Export": method})
            server.add_generic_rpc_handlers((handler,))
        if self._certificate is None:
            port = server.add_insecure_port("127.0.0.1:0")
        else:
            certificate, key = (_read(path) for path in self._certificate)
            credentials = library.ssl_server_credentials([(key, certificate)])
            port = server.add_secure_port("127.0.0.1:0", credentials)
        server.start()

        def stop() -> None:
            server.stop(grace=0).wait()
            pool.shutdown(wait=True)

        return port, stop

    def _serve_http(self) -> tuple[int, Callable[[], None]]:
        receiver = self
        signals = {path: signal for signal, (_, path, _, _) in _SERVICES.items()}

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = self.rfile.read(int(headers.get("content-length", "0")))
                if headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                elif headers.get("content-encoding") == "deflate":
                    body = zlib.decompress(body)
                signal = signals.get(self.path)
                if signal is None:
                    self.answer(404)
                else:
                    status = receiver._receive(signal, headers, body)
                    self.answer(_HTTP_STATUS.get(status, 200))

            def answer(self, status: int) -> None:
                try:
                    self.send_response(status)
                    self.send_header("content-type", "application/x-protobuf")
                    self.send_header("content-length", "0")
                    self.end_headers()
                except OSError:  # the program did not wait for it
                    self.close_connection = True

            def log_message(self, format: str, *args: Any) -> None:
                pass

        server = _HTTPServer(("127.0.0.1", 0), Handler)
        if self._certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self._certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join(10)

        return int(server.server_address[1]), stop


class _HTTPServer(http.server.ThreadingHTTPServer):
    """Ends the connections that programs keep open when it is closed."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, *arguments: Any) -> None:
        self._open: set[socket.socket] = set()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: programs that go away are what some tests are about."""

    def server_close(self) -> None:
        super().server_close()
        for connection in list(self._open):
            self.shutdown_request(connection)


class RefusingEndpoint:
    """A port that refuses connections, and that nobody else can take meanwhile."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))

    def __enter__(self) -> RefusingEndpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    @property
    def endpoint(self) -> str:
        """What ``OTEL_EXPORTER_OTLP_ENDPOINT`` is set to."""
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def environment(self, protocol: Protocol) -> dict[str, str]:
        """Return the variables that make an exporter try here."""
        return endpoint_environment(protocol, self.endpoint)


class SilentEndpoint(RefusingEndpoint):
    """A port that accepts connections and never says a word."""

    def __init__(self) -> None:
        super().__init__()
        # The system completes connections for the backlog: nobody has to accept.
        self._socket.listen(64)


def endpoint_environment(protocol: Protocol, endpoint: str) -> dict[str, str]:
    """Return the variables that make an exporter send to ``endpoint``."""
    return {
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
    }


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
