"""The commands ``config check`` and ``config list``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
from attrs import asdict, frozen

from kinesis_publishers.assembly import (
    checkpoint_store_class,
    open_control,
    publisher_factory_class,
)
from kinesis_publishers.cli.shared.commands import CleanGroup, read_file
from kinesis_publishers.cli.shared.console import (
    add_row,
    new_table,
    print_json_lines,
    print_rich,
    say,
)
from kinesis_publishers.cli.shared.event_loop import run_until_signal
from kinesis_publishers.cli.shared.formats import counted
from kinesis_publishers.cli.shared.kcl_properties import properties_in
from kinesis_publishers.config import (
    CheckpointConfig,
    FanOutConfig,
    Properties,
    SqliteCheckpointConfig,
    StreamsConfig,
)
from kinesis_publishers.config.catalogue import (
    all_declarations,
    all_options,
    extension_options,
    find_option,
)
from kinesis_publishers.config.option import MASK, Option, accepted_text, value_text
from kinesis_publishers.config.properties import pairs_in
from kinesis_publishers.config.rules import IneffectiveKey, ineffective_keys
from kinesis_publishers.config.sections.source import built_in_publisher
from kinesis_publishers.errors import ConfigErrors, KinesisPublishersError
from kinesis_publishers.metrics.sinks import event_reporter_classes
from kinesis_publishers.model.native import find_native

if TYPE_CHECKING:
    from kinesis_publishers.aws.permissions import Permission


@frozen
class _Findings:
    """The findings of a check, as in JSON."""

    errors: tuple[str, ...] = ()
    warnings: tuple[IneffectiveKey, ...] = ()
    # Of each key its value, its unit, and as source whether it is given or a default.
    values: tuple[dict[str, Any], ...] = ()
    permissions: tuple[Permission, ...] = ()


@click.group(cls=CleanGroup)
def config() -> None:
    """Show what can be configured, and check configurations and permissions."""


@config.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--partial", is_flag=True, help="Accept a FILE without streams, as with --stream.")
@click.option(
    "--permissions",
    type=click.Choice(["read", "write", "both"]),
    help="Ask AWS whether its permissions allow reading or writing, without effects.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with all findings.")
def check(file: str, partial: bool, permissions: str | None, as_json: bool) -> None:
    """Check a .properties FILE (- for standard input): all errors at once, and what is in effect.

    Prints every option with its value, in its unit, whether it is given or a default; secrets are
    masked. Warns of keys without effect. Exits with 1 if there are errors, or a permission is
    denied.

    \b
    Examples:
      kinesis-publishers config check my.properties
      kinesis-publishers config check - --json < my.properties
      kinesis-publishers config check my.properties --permissions read
    """
    findings = _check(read_file(file), name=file, partial=partial, permissions=permissions)
    if as_json:
        decoder = find_native()[1]
        print_json_lines(
            [{"is_valid": not findings.errors, "decoder": decoder, **asdict(findings)}]
        )
    else:
        _print(findings)
    if findings.errors:
        click.get_current_context().exit(1)


@config.command("list")
@click.argument("text", default="")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per option.")
def list_command(text: str, as_json: bool) -> None:
    """List all options, or those whose key or description has TEXT.

    \b
    Examples:
      kinesis-publishers config list
      kinesis-publishers config list initpos
    """
    wanted = text.lower()
    found = [
        option
        for option in all_declarations()
        if wanted in option.full_key.lower() or wanted in option.doc.lower()
    ]
    if as_json:
        print_json_lines(map(_option_fields, found))
    elif found:
        rows = [(one.full_key, accepted_text(one), _default_text(one), one.doc) for one in found]
        headings = ("Key", "Accepted", "Default", "Meaning")
        print_rich(new_table(*headings, rows=rows, overflow="fold"))
    else:
        raise click.ClickException(f"No option has {text!r} in its key or its description.")


def _check(content: bytes, *, name: str, partial: bool, permissions: str | None) -> _Findings:
    try:
        properties, notes = properties_in(pairs_in(content, name=name), complete=not partial)
    except ConfigErrors as error:
        return _Findings(errors=tuple(map(str, error.problems)))
    errors = []
    # Load the named classes here, too: otherwise they would fail when reading starts.
    for load in (
        publisher_factory_class,
        FanOutConfig.from_properties,
        lambda given: checkpoint_store_class(CheckpointConfig.from_properties(given).store),
        SqliteCheckpointConfig.from_properties,
        event_reporter_classes,
    ):
        try:
            load(properties)
        except KinesisPublishersError as error:
            errors.append(str(error))
    values = () if errors else tuple(_value_rows(properties))
    proved: tuple[Permission, ...] = ()
    if permissions is not None and not errors:
        try:
            proved = run_until_signal(_prove(properties, permissions))
        except KinesisPublishersError as error:
            errors.append(str(error))
        errors += [one.reason for one in proved if one.verdict == "denied"]
    return _Findings(tuple(errors), (*notes, *ineffective_keys(properties)), values, proved)


async def _prove(properties: Properties, wanted: str) -> tuple[Permission, ...]:
    """Try the calls of the configured reader, or of a producer, on each stream."""
    from kinesis_publishers.aws.permissions import PermissionProof

    publisher = built_in_publisher(properties)
    is_fan_out = publisher is not None and publisher.needs_registration
    # Spark reads ranges again after a restart, by polling.
    is_spark = bool(properties.given_keys(extension_options()))
    polls = publisher is None or publisher.polls or is_spark
    found: list[Permission] = []
    async with open_control(properties) as control:
        for stream in await control.streams():
            proof = PermissionProof(control.control_plane, stream.arn, found)
            await proof.describe()
            if wanted != "write" and polls:
                await proof.poll()
            if wanted != "write" and is_fan_out:
                await proof.fan_out(control.registration)
            if wanted != "read":
                await proof.write()
    if not found:
        raise StreamsConfig.names.missing()
    return tuple(found)


def _print(findings: _Findings) -> None:
    if findings.values:
        table = new_table("Key", "Value", "Source", overflow="fold")
        for row in sorted(findings.values, key=lambda row: row["source"], reverse=True):
            style = "bold" if row["source"] == "given" else ""
            value = _with_unit(row["value"], row["unit"])
            add_row(table, row["key"], value, row["source"], style=style)
        print_rich(table)
    if findings.permissions:
        rows = [
            # The errors have the reason of a refusal.
            (one.action, one.resource, one.verdict, "" if one.verdict == "denied" else one.reason)
            for one in findings.permissions
        ]
        headings = ("Permission", "Resource", "Verdict", "Reason")
        print_rich(new_table(*headings, rows=rows, overflow="fold"))
    for warning in findings.warnings:
        say(f"Warning: {warning}.")
    for error in findings.errors:
        say(f"Error: {error}")
    if not findings.errors:
        say(f"Records are decoded in {find_native()[1]}.")
    say(f"{counted(len(findings.errors), 'error')}." if findings.errors else "No errors.")


def _default_text(option: Option[Any]) -> str:
    return "required" if option.required else _with_unit(value_text(option.default), option.unit)


def _with_unit(value: str | None, unit: str | None) -> str:
    if value is None:
        return "-"
    return f"{value} {unit}" if unit else value


def _option_fields(option: Option[Any]) -> dict[str, object]:
    return {
        "key": option.full_key,
        "section": option.section,
        "accepted": accepted_text(option),
        "default": value_text(option.default),
        "unit": option.unit,
        "doc": option.doc,
        "required": option.required,
        "secret": option.secret,
    }


def _value_rows(properties: Properties) -> Iterator[dict[str, Any]]:
    """Yield the value of every option, and of the given members of families."""
    given = properties.to_dict()
    members = map(find_option, given)
    for option in dict.fromkeys((*all_options(), *filter(None, members))):
        is_given, parsed = properties.is_given(option), properties.get(option)
        value = value_text(parsed)
        if is_given and option.secret:
            value = MASK
        elif is_given and isinstance(parsed, tuple):
            # A list of values reads best as it was written.
            value = str(given[option.full_key])
        unit = option.unit if value is not None else None
        source = "given" if is_given else "default"
        yield {"key": option.full_key, "value": value, "unit": unit, "source": source}
