"""Named fakes: planes and publishers that follow a script, and recorders of calls.

A script knows no rules of the service. For rules (stream consumers and their phases, limits,
reshards, faults) use :class:`~kinesis_publishers.testing.local_kinesis.LocalKinesis`, whose
``data_plane()`` and ``control_plane()`` need no network either.
"""

from kinesis_publishers.testing.fakes import planes, producing, recording, samples, scripts, shards
from kinesis_publishers.testing.fakes.planes import *  # noqa: F403
from kinesis_publishers.testing.fakes.producing import *  # noqa: F403
from kinesis_publishers.testing.fakes.recording import *  # noqa: F403
from kinesis_publishers.testing.fakes.samples import *  # noqa: F403
from kinesis_publishers.testing.fakes.scripts import *  # noqa: F403
from kinesis_publishers.testing.fakes.shards import *  # noqa: F403

# The public names of each module, once.
__all__ = [
    *planes.__all__,
    *producing.__all__,
    *recording.__all__,
    *samples.__all__,
    *scripts.__all__,
    *shards.__all__,
]
