"""No dead knobs: an option that nothing reads is listed here, and the list only gets shorter."""

from __future__ import annotations

import ast
from pathlib import Path

import attrs
import pytest

import kinesis_publishers
from kinesis_publishers import config
from kinesis_publishers.config.options import all_declarations

# Declared for the parts that are still to come: watermarks.
NOT_READ_YET = {
    "shard.idle.interval",
    "watermark.lookahead.millis",
    "watermark.sync.interval",
    "watermark.sync.queue.capacity",
}

_TYPED_CONFIGS = [one for one in vars(config).values() if hasattr(one, "from_properties")]
# These make something of what has been configured, and declare nothing.
_READERS_IN_CONFIG = ("sessions.py", "custom_credentials.py")
_ROOT = Path(kinesis_publishers.__file__).parent.parent


def attributes_read_outside_config() -> set[str]:
    """Return every attribute name that the code outside of the configuration reads."""
    names: set[str] = set()
    for package in ("kinesis_publishers", "kinesis_publishers_spark"):
        for path in (_ROOT / package).rglob("*.py"):
            if "config" in path.relative_to(_ROOT).parts and path.name not in _READERS_IN_CONFIG:
                continue
            tree = ast.parse(path.read_text(encoding="utf-8"))
            names |= {
                node.attr
                for node in ast.walk(tree)
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
            }
    return names


def test_the_options_that_nothing_reads_are_exactly_the_listed_ones() -> None:
    idle = {one.key for one in all_declarations() if not one.implemented}
    assert idle == NOT_READ_YET


@pytest.mark.parametrize("typed", _TYPED_CONFIGS, ids=lambda typed: typed.__name__)
def test_every_field_of_a_typed_config_is_read_by_somebody(typed: type) -> None:
    assert {field.name for field in attrs.fields(typed)} <= attributes_read_outside_config()
