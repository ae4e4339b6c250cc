"""Tags, as far as clients need them: kept and listed, without policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_publishers.testing.local_kinesis.errors import serialization
from kinesis_publishers.testing.local_kinesis.requests import Request, missing

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis.operations.types import Members, Operation
    from kinesis_publishers.testing.local_kinesis.state import ServiceState

__all__ = ["OPERATIONS", "tags_in"]


def tags_in(request: Request) -> dict[str, str]:
    """Return the Tags of a request; none if it has none."""
    section = request.section("Tags")
    if section is None:
        return {}
    tags: dict[str, str] = {}
    for key, value in section.fields.items():
        if not isinstance(value, str):
            raise serialization(f"The value of tag {key} is not a string.")
        tags[key] = value
    return tags


def add_tags(state: ServiceState, request: Request) -> Members:
    if not request.has("Tags"):
        raise missing("Tags")
    state.stream_in(request).tags.update(tags_in(request))
    return None


def remove_tags(state: ServiceState, request: Request) -> Members:
    stream = state.stream_in(request)
    for key in request.items("TagKeys"):
        stream.tags.pop(str(key), None)
    return None


def list_tags(state: ServiceState, request: Request) -> Members:
    stream = state.stream_in(request)
    limit = request.integer("Limit", 1, 50) or 50
    after = request.text("ExclusiveStartTagKey") or ""
    tags = [(key, value) for key, value in sorted(stream.tags.items()) if key > after]
    return {
        "Tags": [{"Key": key, "Value": value} for key, value in tags[:limit]],
        "HasMoreTags": len(tags) > limit,
    }


OPERATIONS: dict[str, Operation] = {
    "AddTagsToStream": add_tags,
    "RemoveTagsFromStream": remove_tags,
    "ListTagsForStream": list_tags,
}
