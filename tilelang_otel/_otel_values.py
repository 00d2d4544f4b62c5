"""What the values of OpenTelemetry's own variables may be.

Owns one check for each kind of value: text in, what the SDK shall see and a
remark for the user out. Which variable has which kind is up to
``_otel_environment``. Nothing here raises, and nothing that may be secret gets
into a remark.

The kinds follow the OpenTelemetry specification of environment variables: a
blank value counts as unset, words are compared without regard to case, and
what is not understood is reported and left out.
"""

from __future__ import annotations

import importlib.metadata
import math
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final
from urllib.parse import unquote, urlsplit

__all__ = [
    "BUILT_IN_EXPORTERS",
    "Check",
    "Checked",
    "Kind",
    "component_names",
    "headers_of",
    "mask_url",
]

BUILT_IN_EXPORTERS: Final = frozenset({"otlp_jsonl"})
"""Exporters of this package: there even when it is not installed as a distribution."""

_LOOPBACK: Final = re.compile(r"localhost|127(\.\d+){3}|\[::1\]")
_GRPC_TARGETS: Final = ("unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:", "xds:")

# A header's name is a token of RFC 9110; gRPC takes fewer characters.
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_GRPC_HEADER_NAME: Final = re.compile(r"[0-9A-Za-z_.\-]+")
_HEADER_TEXT: Final = re.compile(r"[\x20-\x7e]*")
# What the SDK's parser takes after the equals sign.
_HEADER_RAW: Final = re.compile(r"[\x20\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*")


@dataclass(frozen=True)
class Checked:
    """What became of one value."""

    value: str | None
    """What the SDK shall see; None means that it shall see nothing."""

    remark: str | None = None
    """What is said about it, to follow the variable; None if nothing is wrong."""


Check = Callable[[str], Checked]
"""Takes a value that is not blank."""


@dataclass(frozen=True)
class Kind:
    """A kind of value: how it is checked and what it accepts, in words."""

    check: Check
    accepts: Callable[[], str]
    is_secret: bool = False


@cache
def component_names(group: str) -> frozenset[str]:
    """Return the names of the installed components of one entry point group."""
    names = {point.name for point in importlib.metadata.entry_points(group=group)}
    if group == "opentelemetry_traces_exporter":
        names |= BUILT_IN_EXPORTERS
    return frozenset(names)


def mask_url(url: str) -> str:
    """Return ``url`` without a user, a password, a query and a fragment."""
    head, at, tail = url.rpartition("@")
    if at:
        scheme, separator, _ = head.partition("://")
        url = f"{scheme}{separator}***@{tail}" if separator else f"***@{tail}"
    return re.split(r"[?#]", url, maxsplit=1)[0][:200]


def anything() -> Kind:
    """Return the kind of values that cannot be wrong."""
    return Kind(Checked, lambda: "any text")


def whole_number(least: int, default: str) -> Kind:
    """Return the kind of whole numbers from ``least`` on."""

    def check(text: str) -> Checked:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number < 2**31:
            return Checked(None, f"is ignored, using {default}")
        return Checked(str(number))

    return Kind(check, lambda: f"a whole number from {least} on")


def number(unit: str, default: str, most: float = math.inf, is_zero_fine: bool = False) -> Kind:
    """Return the kind of numbers above 0 (or from 0 on) up to ``most``."""

    def check(text: str) -> Checked:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        is_high_enough = value >= 0 if is_zero_fine else value > 0
        if not (is_high_enough and math.isfinite(value) and value <= most):
            return Checked(None, f"is ignored, using {default}")
        return Checked(text.strip())

    least = "from 0" if is_zero_fine else "above 0"
    limit = "" if math.isinf(most) else f" to {most:g}"
    return Kind(check, lambda: f"a number {unit}{least}{limit}")


def boolean(default: str) -> Kind:
    """Return the kind of true or false, which is not 1 or 0."""

    def check(text: str) -> Checked:
        word = text.strip().lower()
        return Checked(word) if word in ("true", "false") else Checked(None, f"is {default}")

    return Kind(check, lambda: "true or false")


def choice(names: Iterable[str], default: str) -> Kind:
    """Return the kind of values that are one of a few words."""
    known = tuple(names)

    def check(text: str) -> Checked:
        return _one_of(text.strip(), known, default)

    return Kind(check, lambda: _list(known))


def component(group: str, default: str) -> Kind:
    """Return the kind of values that name one installed component."""

    def check(text: str) -> Checked:
        return _one_of(text.strip(), component_names(group), default)

    return Kind(check, lambda: _list(component_names(group)))


def components(group: str, default: str, extra: Iterable[str] = ("none",)) -> Kind:
    """Return the kind of values that name several installed components, or ``none``."""
    alone = tuple(extra)

    def check(text: str) -> Checked:
        words = [word.strip() for word in text.split(",") if word.strip()]
        if len(words) == 1 and words[0].lower() in alone:
            return Checked(words[0].lower())
        known = component_names(group)
        good: list[str] = []
        bad: list[str] = []
        for word in words:
            name = word if word in known else word.lower()
            (good if name in known else bad).append(name if name in known else word)
        good = list(dict.fromkeys(good))
        if not bad:
            renamed = [name for name in good if name not in words]
            remark = f"is taken as {','.join(good)}" if renamed else None
            return Checked(",".join(good) or None, remark)
        if good:
            return Checked(",".join(good), f"is used without {', '.join(bad)[:80]}")
        return Checked(None, f"is ignored, using {default}")

    return Kind(check, lambda: f"{_list(component_names(group), 'and')}, or {alone[0]}")


def readable_file(default: str) -> Kind:
    """Return the kind of paths of files that can be read."""

    def check(text: str) -> Checked:
        if os.path.isfile(text) and os.access(text, os.R_OK):
            return Checked(text)
        return Checked(None, f"is ignored, using {default}")

    return Kind(check, lambda: "the path of a file that can be read")


def endpoint(is_grpc: bool, is_insecure: bool, default: str) -> Kind:
    """Return the kind of OTLP endpoints.

    Args:
        is_grpc: Whether gRPC is spoken there, which has targets beside URLs.
        is_insecure: Whether plain text was asked for.
        default: What is used instead of a bad one.
    """

    def check(text: str) -> Checked:
        url = text.strip()
        if is_grpc and url.lower().startswith(_GRPC_TARGETS):
            return Checked(url)
        if "://" not in url:
            # "host:4317" is what people type. In plain text only where nobody
            # listens, or where it was asked for: headers may hold credentials.
            is_plain = is_insecure or _LOOPBACK.match(url)
            assumed = f"{'http' if is_plain else 'https'}://{url}"
            if _is_url(assumed):
                return Checked(assumed, f"has no scheme and is taken as {mask_url(assumed)}")
        if not _is_url(url):
            return Checked(None, f"is ignored, using {default}")
        return Checked(url)

    example = "http://localhost:4317" if is_grpc else "http://localhost:4318"
    return Kind(check, lambda: f"a URL such as {example}", is_secret=True)


def headers(is_grpc: bool) -> Kind:
    """Return the kind of header lists, whose values are never shown."""

    def check(text: str) -> Checked:
        good: list[str] = []
        bad: list[str] = []
        for position, entry in enumerate(text.split(","), 1):
            if not entry.strip():
                continue
            problem = _header_problem(entry, is_grpc)
            if problem is None:
                good.append(entry.strip())
            else:
                bad.append(f"entry {position} ({problem})")
        value = ",".join(good) or None
        return Checked(value, f"is used without {'; '.join(bad)}" if bad else None)

    def accepts() -> str:
        return "name=value, separated by commas, with percent-encoding in values"

    return Kind(check, accepts, is_secret=True)


def attributes() -> Kind:
    """Return the kind of lists of resource attributes."""

    def check(text: str) -> Checked:
        entries = [entry.strip() for entry in text.split(",") if entry.strip()]
        good = [entry for entry in entries if "=" in entry and entry.partition("=")[0].strip()]
        lost = len(entries) - len(good)
        remark = f"is used without {lost} of its {len(entries)} entries" if lost else None
        return Checked(",".join(good) or None, remark)

    return Kind(check, lambda: "key=value, separated by commas", is_secret=True)


def headers_of(text: str) -> dict[str, str]:
    """Return the headers in the value of a variable, as they are sent."""
    pairs = [entry.partition("=") for entry in text.split(",") if "=" in entry]
    return {unquote(name).strip().lower(): unquote(value).strip() for name, _, value in pairs}


def _one_of(word: str, known: Iterable[str], default: str) -> Checked:
    if word in known:
        return Checked(word)
    if word.lower() in known:
        return Checked(word.lower(), f"is taken as {word.lower()}")
    return Checked(None, f"is ignored, using {default}")


def _list(names: Iterable[str], last: str = "or") -> str:
    ordered = sorted(names)
    if len(ordered) < 2:
        return ordered[0] if ordered else "nothing: no component is installed"
    return f"{', '.join(ordered[:-1])} {last} {ordered[-1]}"


def _is_url(text: str) -> bool:
    if re.search(r"[\s<>\"\\^`{|}]", text):
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
    name = name.strip()
    if not separator:
        return "without an equals sign"
    if ":" in name:
        return "with a colon where an equals sign belongs"
    decoded = unquote(name)
    if not (_GRPC_HEADER_NAME if is_grpc else _HEADER_NAME).fullmatch(decoded):
        return "whose name holds characters that no header's name may have"
    if is_grpc and decoded.lower().endswith("-bin"):
        return "whose name ends with -bin, for binary values"
    if not _HEADER_RAW.fullmatch(raw) or not _HEADER_TEXT.fullmatch(unquote(raw)):
        return "whose value holds characters that no header's value may have"
    return None
