"""Streams by their names, for emulators that know no StreamARN."""

from __future__ import annotations

from typing import Any

import orjson

__all__ = ["name_streams_if_asked"]


def name_streams_if_asked(hooks: Any) -> None:
    """Let a client send names instead of ARNs once a call was refused for want of a StreamName.

    AWS itself never asks for one: an ARN says the account, too, which a name does not.

    Args:
        hooks: those of a client of botocore, or of aiobotocore.
    """

    def repeat(response: Any, operation: Any, request_dict: dict[str, Any], **_: Any) -> int | None:
        # Some versions hand on what is no answer of AWS's, for their caller to break on.
        answer = response[1] if response and isinstance(response[1], dict) else {}
        error, before = answer.get("Error", {}), request_dict["body"]
        # A stream that is not found may have any name.
        is_missing = error.get("Code") == "ResourceNotFoundException"
        if is_missing or "streamname" not in str(error.get("Message")).lower():
            return None
        _put_name(request_dict, operation)
        if request_dict["body"] == before:
            return None
        hooks.register("before-call.kinesis", _put_name, unique_id=__name__)
        return 0  # the seconds after which botocore sends it again

    hooks.register("needs-retry.kinesis", repeat)


def _put_name(params: dict[str, Any], model: Any, **_: Any) -> None:
    request = orjson.loads(params["body"])
    if "StreamARN" in request and "StreamName" in model.input_shape.members:
        request["StreamName"] = request.pop("StreamARN").rpartition("/")[2]
        params["body"] = orjson.dumps(request)
