"""No dead knobs: an option that nothing reads is listed here, and the list only gets shorter."""

from __future__ import annotations

import ast

import attrs
import pytest

from kinesis_publishers import config
from kinesis_publishers.config.options import all_declarations
from tests.architecture.sources import sources

# Declared for the parts that are still to come: watermarks.
NOT_READ_YET = {
    "shard.idle.interval",
    "watermark.lookahead.millis",
    "watermark.sync.interval",
    "watermark.sync.queue.capacity",
}

_TYPED_CONFIGS = [one for one in vars(config).values() if hasattr(one, "from_properties")]


def attributes_read_outside_config() -> set[str]:
    """Return every attribute name that the code outside of the configuration reads."""
    return {
        node.attr
        for source in sources().values()
        if "config" not in source.path.parts
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


def test_the_options_that_nothing_reads_are_exactly_the_listed_ones() -> None:
    idle = {one.key for one in all_declarations() if not one.implemented}
    assert idle == NOT_READ_YET


@pytest.mark.parametrize("typed", _TYPED_CONFIGS, ids=lambda typed: typed.__name__)
def test_every_field_of_a_typed_config_is_read_by_somebody(typed: type) -> None:
    assert {field.name for field in attrs.fields(typed)} <= attributes_read_outside_config()
