"""Registers the stream consumers of enhanced fan-out, and removes them."""

from __future__ import annotations

from kinesis_publishers.abc import ControlContext, StreamConsumerRegistrar
from kinesis_publishers.config import RegistrationConfig, RegistrationStrategy
from kinesis_publishers.registration.consumers import deregister_consumer as deregister_consumer
from kinesis_publishers.registration.lease_files import ConsumerLease as ConsumerLease
from kinesis_publishers.registration.strategies import EagerRegistrar, LazyRegistrar, NoRegistrar


def create_registrar(
    config: RegistrationConfig, context: ControlContext
) -> StreamConsumerRegistrar:
    """Return the registrar of the configured strategy (``stream.efo.registration``)."""
    match config.strategy:
        case RegistrationStrategy.LAZY:
            return LazyRegistrar(config, context)
        case RegistrationStrategy.EAGER:
            return EagerRegistrar(config, context)
        case RegistrationStrategy.NONE:
            return NoRegistrar(config.consumer_arns)
