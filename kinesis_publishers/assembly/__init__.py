"""Properties in, open services out: the only room that makes objects of concrete classes."""

from kinesis_publishers.assembly.classes import checkpoint_store_class as checkpoint_store_class
from kinesis_publishers.assembly.classes import open_events as open_events
from kinesis_publishers.assembly.classes import publisher_factory_class as publisher_factory_class
from kinesis_publishers.assembly.classes import watermark_assigner_of as watermark_assigner_of
from kinesis_publishers.assembly.classes import with_region as with_region
from kinesis_publishers.assembly.services import ControlServices as ControlServices
from kinesis_publishers.assembly.services import Services as Services
from kinesis_publishers.assembly.services import WritingServices as WritingServices
from kinesis_publishers.assembly.services import open_checkpoint_store as open_checkpoint_store
from kinesis_publishers.assembly.services import open_checkpointer as open_checkpointer
from kinesis_publishers.assembly.services import open_control as open_control
from kinesis_publishers.assembly.services import open_services as open_services
from kinesis_publishers.assembly.services import open_writing as open_writing
