"""Diagnostic events: facts about reading, as values, for logs, metrics and tests.

A component reports what happened to an :class:`EventSink`, which decides what to do with it. Each
class of :mod:`.reading`, :mod:`.service` and :mod:`.producing` is an event, and so public.
"""

from kinesis_publishers.events.event import Event as Event
from kinesis_publishers.events.producing import *  # noqa: F403
from kinesis_publishers.events.reading import *  # noqa: F403
from kinesis_publishers.events.service import *  # noqa: F403
from kinesis_publishers.events.sinks import EVENT_TYPES as EVENT_TYPES
from kinesis_publishers.events.sinks import LOG_FORMAT_VARIABLE as LOG_FORMAT_VARIABLE
from kinesis_publishers.events.sinks import EventSink as EventSink
from kinesis_publishers.events.sinks import JsonLogFormatter as JsonLogFormatter
from kinesis_publishers.events.sinks import fan_out_events as fan_out_events
from kinesis_publishers.events.sinks import guard_events as guard_events
from kinesis_publishers.events.sinks import ignore_event as ignore_event
from kinesis_publishers.events.sinks import level_of as level_of
from kinesis_publishers.events.sinks import log_event as log_event
from kinesis_publishers.events.sinks import log_formatter as log_formatter
