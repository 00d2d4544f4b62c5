"""``tilelang-otel doctor``: whether traces would arrive, and why not.

Owns the options, the report on the terminal and as JSON, and the exit code.
What is found is up to ``_doctor.facts`` and ``_doctor.production``, what is likely
wrong with it to ``_doctor.advice``, and the test span to ``_doctor.send``.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from argparse import _SubParsersAction  # pyright: ignore[reportPrivateUsage]

    from rich.console import Console

    from tilelang_otel._otel.environment import OtelEnvironment
    from tilelang_otel.cli._doctor.send import Sent

__all__ = ["add_parser", "main"]

_DESCRIPTION = """\
Check that traces would arrive: what can be traced here, which OpenTelemetry
variables are in force and what is wrong with them, what is kept for the case that
a process dies, and whether a receiver takes a test span. Credentials are never
shown."""

_EPILOG = """\
exit code: 0 if the test span was accepted, or none was to be sent; else 1."""


def add_parser(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments to the command line."""
    parser = subparsers.add_parser(
        "doctor",
        help="check that traces would arrive",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--no-send", action="store_true", help="send no test span")
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=10.0,
        metavar="SECONDS",
        help="how long a receiver may take to answer (default 10)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def main(args: argparse.Namespace) -> int:
    """Do what ``args`` asks for.

    Args:
        args: What the parser of :func:`add_parser` made of the command line.

    Returns:
        0 if every exporter's test span was accepted or none was to be sent,
        else 1.
    """
    from tilelang_otel._otel.environment import read_environment
    from tilelang_otel.cli._drawing.console import make_console

    environment = read_environment()
    report = _gather(environment)
    console = make_console()
    if not args.json:
        _show(report, console)
    sent = None if args.no_send else _send(environment, args.timeout, make_console(stderr=True))
    is_fine = sent is None or (bool(sent) and all(item.is_accepted for item in sent))
    if args.json:
        report["test_span"] = None if sent is None else [dataclasses.asdict(item) for item in sent]
        report["is_fine"] = is_fine
        print(json.dumps(report, indent=2))
    elif sent is not None:
        _show_sent(sent, environment, console)
    return 0 if is_fine else 1


def _gather(environment: OtelEnvironment) -> dict[str, Any]:
    """Return everything that can be said without sending anything."""
    from tilelang_otel.cli._doctor import facts, production
    from tilelang_otel.cli._doctor.advice import advise

    settings, shown_settings, problems = facts.find_settings()
    records = production.find_crash_records(settings)
    advice = [*advise(environment), *production.advise_on_crash_records(records)]
    wrong = [environment.mask(problem.message) for problem in environment.problems]
    sampler = environment.get("OTEL_TRACES_SAMPLER") or "parentbased_always_on"
    argument = environment.get("OTEL_TRACES_SAMPLER_ARG")
    exports = [] if environment.is_disabled else facts.find_exports(environment)
    return {
        "compilers": [dataclasses.asdict(compiler) for compiler in facts.find_compilers()],
        "versions": facts.find_versions(),
        "exports": [dataclasses.asdict(export) for export in exports],
        "config_file": environment.get("OTEL_CONFIG_FILE"),
        "sampler": sampler if argument is None else f"{sampler}({argument})",
        "service_name": facts.find_service_name(environment),
        "production": dict(production.describe_production(settings, records, environment)),
        "crash_record": dataclasses.asdict(records),
        "settings": [dataclasses.asdict(setting) for setting in shown_settings],
        "warnings": [*wrong, *problems, *advice],
    }


def _send(environment: OtelEnvironment, timeout_s: float, console: Console) -> list[Sent]:
    from tilelang_otel._otel.targets import exporter_names
    from tilelang_otel.cli._doctor.send import send_test_span, send_through_config_file

    if environment.is_disabled:
        return []
    with console.status("sending a test span") as status:

        def tick(target: str, waited_s: float) -> None:
            status.update(f"waiting for {target}: {waited_s:.0f} s of {timeout_s:g} s")

        if environment.get("OTEL_CONFIG_FILE"):
            return send_through_config_file(environment, timeout_s, tick)
        names = exporter_names(environment, default="otlp")
        return send_test_span(environment, names, timeout_s, tick)


def _show(report: dict[str, Any], console: Console) -> None:
    compilers: list[dict[str, Any]] = report["compilers"]
    _section(
        console,
        "What can be traced",
        (
            (item["name"], f"{item['version'] or '?'}  {item['kind']}, in {item['location']}")
            for item in compilers
        )
        if compilers
        else [("nothing", "neither tvm nor tilelang is installed")],
    )
    _section(
        console,
        "Versions",
        ((name, version or "not installed") for name, version in report["versions"].items()),
    )
    _section(console, "Where traces go", _export_rows(report))
    _section(console, "In production", report["production"].items())
    settings: list[dict[str, Any]] = report["settings"]
    _section(
        console,
        "Settings",
        (
            (
                item["variable"].removeprefix("OTEL_PYTHON_TILELANG_").lower(),
                f"{item['value'] or '-'}  "
                + ("default" if item["is_default"] else f"from {item['variable']}"),
            )
            for item in settings
        ),
    )
    for warning in report["warnings"]:
        console.print("warning:", style="yellow", end=" ")
        console.print(warning, soft_wrap=True)


def _export_rows(report: dict[str, Any]) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    if report["config_file"]:
        rows.append(("OTEL_CONFIG_FILE", report["config_file"]))
    elif not report["exports"]:
        rows.append(("exporter", "none"))
    else:
        for export in report["exports"]:
            rows += _rows_of(export)
    rows.append(("sampler", report["sampler"]))
    rows.append(("service", report["service_name"] or "the program's own name  default"))
    return rows


def _rows_of(export: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [("exporter", str(export["exporter"]))]
    if export["protocol"]:
        rows.append(("protocol", export["protocol"]))
        origin = f"from {export['variable']}" if export["variable"] else "default"
        rows.append(("endpoint", f"{export['target']}  {origin}"))
        headers = ", ".join(f"{name}=***" for name in export["headers"])
        rows.append(("headers", headers or "none"))
        rows.append(("compression", export["compression"] or "none"))
        if export["certificate"]:
            rows.append(("certificate", export["certificate"]))
    elif export["target"] != export["exporter"]:
        rows.append(("file", export["target"]))
    return rows


def _section(console: Console, title: str, rows: Iterable[tuple[str, str]]) -> None:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=12, no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(f"  {name}", value)
    console.print(title, style="bold")
    console.print(table)


def _show_sent(sent: list[Sent], environment: OtelEnvironment, console: Console) -> None:
    say: Callable[..., None] = console.print
    if not sent:
        say("failed:", style="red", end=" ")
        reason = "OTEL_SDK_DISABLED" if environment.is_disabled else "OTEL_TRACES_EXPORTER=none"
        say(f"no test span was sent: {reason} switches traces off", soft_wrap=True)
    for item in sent:
        if not item.is_accepted:
            say("failed:", style="red", end=" ")
            say(f"{item.target} did not take the test span: {item.what}", soft_wrap=True)
            say(f"        {item.advice}", soft_wrap=True)
        elif item.what:
            say("ok:", style="green", end=" ")
            say(f"{item.target} {item.what}", soft_wrap=True)
        else:
            say("ok:", style="green", end=" ")
            milliseconds = item.duration_s * 1e3
            say(
                f"{item.target} accepted the test span in {milliseconds:.0f} ms, "
                f"trace {item.trace_id}",
                soft_wrap=True,
            )
