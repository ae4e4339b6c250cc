"""CloudEvents 1.0 as structured JSON.

The package ``cloudevents`` is not used: it makes up the id and the time that a received event
lacks, and writes the ``str`` of data that has no JSON.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from kinesis_publishers.formats.format import JSON, Format
from kinesis_publishers.formats.tracing import current_trace

_VERSION: Final = "1.0"


@frozen
class CloudEvent:
    """An event as CloudEvents 1.0 defines it.

    Attributes:
        attributes: by name, as in the JSON: ``type``, ``source`` and ``id``, which are necessary,
            ``time`` (a text of RFC 3339), ``subject``, and extensions such as ``traceparent``.
        data: anything that JSON has, or bytes.

    Raises:
        ValueError: it is no event; the message names the attribute.
    """

    attributes: Mapping[str, str | int | bool]
    data: Any = None

    def __attrs_post_init__(self) -> None:
        for name in ("type", "source", "id"):
            if not (isinstance(value := self.attributes.get(name), str) and value):
                raise ValueError(f"the attribute {name} of a CloudEvent must be a text, not empty")
        for name, value in self.attributes.items():
            if not re.fullmatch("[a-z0-9]+", name) or name in ("data", "specversion"):
                raise ValueError(f"{name!r:.100} is no name of an attribute of a CloudEvent")
            if not isinstance(value, str | int):
                raise ValueError(f"the attribute {name} must be a text, a whole number or a bool")


def _encode(event: CloudEvent) -> bytes:
    if not isinstance(event, CloudEvent):
        raise TypeError(f"it must be a CloudEvent, not {type(event).__name__}")
    # The trace in which an event was made stays with it.
    trace = {} if "traceparent" in event.attributes else current_trace()
    fields: dict[str, Any] = {"specversion": _VERSION, **event.attributes, **trace}
    if isinstance(event.data, bytes):
        fields["data_base64"] = b64encode(event.data).decode()
    elif event.data is not None:
        fields["data"] = event.data
    return JSON.encode(fields)


def _decode(payload: bytes) -> CloudEvent:
    fields = JSON.decode(payload)
    if not isinstance(fields, dict) or fields.pop("specversion", None) != _VERSION:
        raise ValueError(f"the payload is no JSON of a CloudEvent {_VERSION}")
    data, packed = fields.pop("data", None), fields.pop("data_base64", None)
    if packed is not None:
        data = b64decode(str(packed), validate=True)
    # By the specification an attribute that is null is not there.
    return CloudEvent({name: one for name, one in fields.items() if one is not None}, data)


CLOUD_EVENTS: Final = Format[CloudEvent](_encode, _decode)
