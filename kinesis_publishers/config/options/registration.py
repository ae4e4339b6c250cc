"""Options of the registration of stream consumers for enhanced fan-out."""

from __future__ import annotations

import re
from typing import Final

from kinesis_publishers.config.choices import DeregistrationPolicy, RegistrationStrategy
from kinesis_publishers.config.option import Namespace, Option, OptionFamily
from kinesis_publishers.config.parsers import Choice, Duration, Text

_SECTION = "Registration"

CONSUMER_NAME: Final[Option[str | None]] = Option(
    key="stream.efo.consumername",
    parser=Text(
        accepts="1 to 128 letters, digits, '_', '.' or '-'",
        pattern=re.compile(r"[a-zA-Z0-9_.-]{1,128}"),
    ),
    default=None,
    section=_SECTION,
    doc="The name of the stream consumer, on every stream; needed for LAZY and EAGER.",
)
REGISTRATION: Final = Option(
    key="stream.efo.registration",
    parser=Choice(members=RegistrationStrategy),
    default=RegistrationStrategy.LAZY,
    # The FLIP's own table calls the key "registrar" once.
    spellings=("stream.efo.registrar",),
    section=_SECTION,
    doc="Who registers the consumer: LAZY (when reading starts), EAGER (where the source is "
    "constructed) or NONE (you; no call is made).",
)
CONSUMER_ARN: Final[OptionFamily[str | None]] = OptionFamily(
    member=Option(
        key="stream.efo.consumerarn.<stream>",
        parser=Text(
            accepts="the ARN of a stream consumer "
            "(arn:aws:kinesis:<region>:<account>:stream/<stream>/consumer/<name>:<created>)",
            pattern=re.compile(
                r"arn:aws[a-z-]*:kinesis:[a-z0-9-]+:[0-9]{12}:stream/[a-zA-Z0-9_.-]{1,128}"
                r"/consumer/[a-zA-Z0-9_.-]{1,128}:[0-9]+"
            ),
        ),
        default=None,
        section=_SECTION,
        doc="The ARN of the consumer on one stream; needed for each stream with NONE.",
    ),
    placeholder="<stream>",
    name_pattern=re.compile(r"[a-zA-Z0-9_.-]{1,128}"),
)
DEREGISTER: Final = Option(
    key="stream.efo.deregister",
    parser=Choice(members=DeregistrationPolicy),
    default=DeregistrationPolicy.CREATED,
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="At tear-down: remove a consumer that this application created, or none.",
)
REGISTER_TIMEOUT: Final = Option(
    key="stream.registerstreamconsumer.timeout",
    parser=Duration(unit="s"),
    default=60.0,
    section=_SECTION,
    doc="How long a new consumer may take to become ACTIVE.",
)
DEREGISTER_TIMEOUT: Final = Option(
    key="stream.deregisterstreamconsumer.timeout",
    parser=Duration(unit="s"),
    default=60.0,
    section=_SECTION,
    doc="How long a removed consumer may take to be gone.",
)

OPTIONS: Final = (CONSUMER_NAME, REGISTRATION, DEREGISTER, REGISTER_TIMEOUT, DEREGISTER_TIMEOUT)
FAMILIES: Final = (CONSUMER_ARN,)
