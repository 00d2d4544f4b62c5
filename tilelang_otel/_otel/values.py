"""What the values of OpenTelemetry's own variables may be.

Owns one kind for each sort of value: text in, what the SDK shall see and a
remark for the user out. Which variable is of which kind is up to
``_otel.variables``. Nothing here raises, and nothing that may be secret gets
into a remark.

As the OpenTelemetry specification of environment variables says, a blank value
counts as unset, words are compared without regard to case, and what is not
understood is reported and left out.
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

__all__ = [
    "OTLP_EXPORTERS",
    "Checked",
    "Kind",
    "component_names",
    "installed_names",
    "one_line",
    "word_list",
]

OTLP_EXPORTERS: Final = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}
"""The exporter of each protocol; which one ``otlp`` is, is another variable's choice."""

# Known whether installed or not, so that a missing package is called by its name;
# our own are there even when this package is not installed as a distribution.
_ALWAYS_KNOWN: Final = {
    "opentelemetry_traces_exporter": frozenset({"otlp", "otlp_jsonl", *OTLP_EXPORTERS.values()}),
    "opentelemetry_metrics_exporter": frozenset({"otlp", *OTLP_EXPORTERS.values()}),
    "opentelemetry_logs_exporter": frozenset({"otlp", *OTLP_EXPORTERS.values()}),
}


@dataclass(frozen=True)
class Checked:
    """What became of one value."""

    value: str | None
    """What the SDK shall see; None means that it shall see nothing."""

    remark: str | None = None
    """What is said about it, to follow the variable; None if nothing is wrong."""


def one_line(text: str) -> str:
    """Return ``text`` quoted, in one line, and not too long."""
    return repr(text if len(text) <= 80 else f"{text[:79]}…")


@dataclass(frozen=True)
class Kind:
    """A kind of value."""

    check: Callable[[str], Checked]
    """Takes a value that is not blank. Never raises."""

    accepts: Callable[[], str]
    """What may be there, in words."""

    show: Callable[[str], str] = one_line
    """A value as it may be shown: empty when it may not."""


@cache
def installed_names(group: str) -> frozenset[str]:
    """Return the names of the installed components of one entry point group."""
    return frozenset(point.name for point in importlib.metadata.entry_points(group=group))


def component_names(group: str) -> frozenset[str]:
    """Return the names of the components that may be asked for, installed or not."""
    return installed_names(group) | _ALWAYS_KNOWN.get(group, frozenset())


def word_list(names: Iterable[str], last: str = "or") -> str:
    """Return names as they are listed in a sentence."""
    ordered = sorted(names)
    if len(ordered) < 2:
        return ordered[0] if ordered else "nothing, because no component is installed"
    return f"{', '.join(ordered[:-1])} {last} {ordered[-1]}"


_ATTRIBUTE: Final = re.compile(r"[^=]*[^=\s][^=]*=")


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _ignored(default: str) -> Checked:
    return Checked(None, f"is ignored, using {default}")


def whole_number(least: int, default: str) -> Kind:
    """Return the kind of whole numbers from ``least`` on."""

    def check(text: str) -> Checked:
        try:
            number = int(text)
        except ValueError:
            return _ignored(default)
        return Checked(str(number)) if least <= number < 2**31 else _ignored(default)

    return Kind(check, lambda: f"a whole number from {least} on")


def number(default: str, unit: str = "", most: float | None = None) -> Kind:
    """Return the kind of numbers above 0, or of fractions when there is a limit.

    Args:
        default: What is used instead.
        unit: What it counts.
        most: The highest that is accepted; then 0 is accepted too.
    """

    def check(text: str) -> Checked:
        try:
            value = float(text)
        except ValueError:
            return _ignored(default)
        is_good = value > 0 if most is None else 0 <= value <= most
        return Checked(text.strip()) if math.isfinite(value) and is_good else _ignored(default)

    limit = "above 0" if most is None else f"from 0 to {most:g}"
    return Kind(check, lambda: f"a number {f'of {unit} ' if unit else ''}{limit}")


def boolean(otherwise: str) -> Kind:
    """Return the kind of ``true`` and ``false``; 1 and 0 are neither."""

    def check(text: str) -> Checked:
        word = text.strip().lower()
        return Checked(word) if word in ("true", "false") else Checked(None, otherwise)

    return Kind(check, lambda: "true or false")


def choice(known: Callable[[], Iterable[str]], default: str) -> Kind:
    """Return the kind of values that are one of a few words."""

    def check(text: str) -> Checked:
        word, names = text.strip(), frozenset(known())
        if word in names:
            return Checked(word)
        if word.lower() in names:
            return Checked(word.lower(), f"is taken as {word.lower()}")
        return _ignored(default)

    return Kind(check, lambda: word_list(known()))


def component(group: str, default: str) -> Kind:
    """Return the kind of values that name one installed component."""
    return choice(lambda: component_names(group), default)


def components(group: str, default: str, hint: str = "", star: bool = False) -> Kind:
    """Return the kind of values that name several installed components.

    Args:
        group: The entry point group.
        default: What is used when none of the names is known.
        hint: What else to tell whoever got a name wrong.
        star: Whether ``*`` stands for all of them; else ``none`` stands for none.
    """

    def check(text: str) -> Checked:
        known = component_names(group) | ({"*"} if star else set[str]())
        words = [word.strip() for word in text.split(",") if word.strip()]
        if len(words) == 1 and words[0].lower() == "none" and not star:
            return Checked("none")
        names = [word if word in known else word.lower() for word in words]
        good = list(dict.fromkeys(name for name in names if name in known))
        bad = [word for word, name in zip(words, names, strict=True) if name not in known]
        if not good:
            return _ignored(default)
        if bad:
            return Checked(",".join(good), f"is taken as {','.join(good)}")
        is_respelt = not set(good) <= set(words)
        return Checked(",".join(good), f"is taken as {','.join(good)}" if is_respelt else None)

    def accepts() -> str:
        last = "*" if star else "none"
        return f"{word_list(component_names(group), 'and')} (separated by commas), or {last}{hint}"

    return Kind(check, accepts)


def words(known: Iterable[str], default: str) -> Kind:
    """Return the kind of lists of words, all of which must be known."""
    names = frozenset(known)

    def check(text: str) -> Checked:
        given = {word.strip().upper() for word in text.split(",") if word.strip()}
        return Checked(text) if given <= names else _ignored(default)

    return Kind(check, lambda: f"{word_list(names, 'and')}, separated by commas")


def readable_file(default: str) -> Kind:
    """Return the kind of paths of files that can be read."""

    def check(text: str) -> Checked:
        is_good = os.path.isfile(text) and os.access(text, os.R_OK)
        return Checked(text) if is_good else _ignored(default)

    return Kind(check, lambda: "the path of a file that can be read")


def text(default: str) -> Kind:
    """Return the kind of texts that can be sent: anything but bytes that are no UTF-8."""

    def check(text: str) -> Checked:
        return Checked(text) if _is_text(text) else _ignored(default)

    return Kind(check, lambda: "text in UTF-8")


def attributes() -> Kind:
    """Return the kind of lists of resource attributes, whose values are not shown."""

    def check(text: str) -> Checked:
        entries = [entry.strip() for entry in text.split(",") if entry.strip()]
        good = [entry for entry in entries if _ATTRIBUTE.match(entry) and _is_text(entry)]
        lost = len(entries) - len(good)
        remark = f"is used without {lost} of its {len(entries)} entries" if lost else None
        return Checked(",".join(good) or None, remark)

    return Kind(check, lambda: "key=value, separated by commas", lambda _: "")
