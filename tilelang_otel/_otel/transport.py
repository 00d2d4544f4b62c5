"""What the values of OTLP endpoint and header variables may be, and what is secret in them.

Owns URLs, headers, and blacking out of both; simpler kinds of values are up to
``_otel.values``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote, urlsplit

from tilelang_otel._otel.values import Checked, Kind

__all__ = ["compression", "endpoint", "headers", "mask_url", "secrets_of"]

_LOOPBACK: Final = re.compile(r"(localhost|127(\.\d+){3}|\[::1\])(:|/|$)", re.IGNORECASE)
_GRPC_TARGET: Final = re.compile(r"(unix|unix-abstract|dns|ipv4|ipv6|xds):\S+")

# A header's name is a token of RFC 9110; gRPC takes fewer characters. A raw
# value is what the SDK's parser takes, a decoded one what can be sent.
_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_GRPC_NAME: Final = re.compile(r"[0-9A-Za-z_.\-]+")
_RAW_VALUE: Final = re.compile(r"[\x20\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*")
_VALUE: Final = re.compile(r"[\x20-\x7e]*")


def mask_url(url: str) -> str:
    """Return ``url`` without a user, a password, a query and a fragment."""
    scheme, separator, rest = url.rpartition("://")
    rest = re.split(r"[?#]", rest, maxsplit=1)[0]
    _, at, host = rest.rpartition("@")
    return f"{scheme}{separator}{'***@' if at else ''}{host}"[:200]


def endpoint(is_grpc: bool, is_insecure: bool, default: str) -> Kind:
    """Return the kind of OTLP endpoints.

    Args:
        is_grpc: Whether gRPC is spoken there, which has targets beside URLs.
        is_insecure: Whether plain text was asked for.
        default: What is used instead of a bad one.
    """

    def check(text: str) -> Checked:
        url = text.strip()
        if _is_url(url) or (is_grpc and _GRPC_TARGET.fullmatch(url)):
            return Checked(url)
        # "host:4317" is what people type. It is taken for plain text only where
        # nobody listens, or where that was asked for: headers may hold credentials.
        is_plain = is_insecure or _LOOPBACK.match(url) is not None
        assumed = f"{'http' if is_plain else 'https'}://{url}"
        if "://" not in url and _is_url(assumed):
            return Checked(assumed, f"has no scheme and is taken as {mask_url(assumed)}")
        return Checked(None, f"is ignored, using {default}")

    example = f"a URL such as http://localhost:{4317 if is_grpc else 4318}"
    return Kind(check, lambda: example, lambda text: repr(mask_url(text)))


def compression(is_grpc: bool) -> Kind:
    """Return the kind of compression names; Python's gRPC exporter does not know ``none``."""
    known = ("gzip", "none") if is_grpc else ("gzip", "deflate", "none")

    def check(text: str) -> Checked:
        word = text.strip().lower()
        if word not in known:
            return Checked(None, "is ignored, using none")
        return Checked(None if is_grpc and word == "none" else word)

    return Kind(check, lambda: f"{', '.join(known[:-1])} or none")


def headers(is_grpc: bool) -> Kind:
    """Return the kind of header lists, whose values are never shown."""

    def check(text: str) -> Checked:
        good: list[str] = []
        bad: list[str] = []
        for position, entry in enumerate(text.split(","), 1):
            problem = _header_problem(entry, is_grpc) if entry.strip() else ""
            if problem is None:
                good.append(entry.strip())
            elif problem:
                bad.append(f"entry {position}, {problem}")
        remark = f"is used without {'; '.join(bad)}" if bad else None
        return Checked(",".join(good) or None, remark)

    accepts = "name=value, separated by commas, values percent-encoded"
    return Kind(check, lambda: accepts, lambda _: "")


def secrets_of(header_lists: Iterable[str], urls: Iterable[str]) -> frozenset[str]:
    """Return every piece of these values that must not be shown.

    Args:
        header_lists: Values of header variables, well-formed or not.
        urls: Values of endpoint variables.
    """
    found: set[str] = set()
    for entry in (entry for text in header_lists for entry in text.split(",")):
        value = re.split(r"[=:]", entry, maxsplit=1)[-1].strip()
        for form in (value, unquote(value)):
            found |= {form, *form.split()}
    for url in urls:
        userinfo, at, _ = re.split(r"[/?#]", url.rpartition("://")[2])[0].rpartition("@")
        if at:
            found |= {userinfo, *userinfo.split(":"), *unquote(userinfo).split(":")}
        found |= set(filter(None, re.split(r"[&=]", url.partition("?")[2])))
    return frozenset(piece for piece in found if len(piece) > 3)


def _is_url(text: str) -> bool:
    if not text.isascii() or re.search(r"[\x00-\x20<>\"\\^`{|}]", text):
        return False
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    return parts.scheme.lower() in ("http", "https") and bool(parts.hostname) and port != 0


def _header_problem(entry: str, is_grpc: bool) -> str | None:
    """Return why one entry cannot be sent, in words that hold nothing of its value."""
    name, separator, raw = entry.strip().partition("=")
    if not separator:
        return "which has no equals sign"
    if ":" in name:
        return "which has a colon before its equals sign"
    name = unquote(name.strip())
    if not (_GRPC_NAME if is_grpc else _NAME).fullmatch(name):
        return "whose name has characters that no header's name may have"
    if is_grpc and name.lower().endswith("-bin"):
        return "whose name ends with -bin, which is for bytes"
    if not _RAW_VALUE.fullmatch(raw) or not _VALUE.fullmatch(unquote(raw)):
        return "whose value has characters that no header's value may have"
    return None
