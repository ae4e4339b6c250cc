"""Carries SubscribeToShard calls that aiobotocore has signed, over one HTTP client or another."""

from kinesis_publishers.aws.carriers.carrier import (
    Endpoint,
    SignedCall,
    SubscriptionCarrier,
    SubscriptionResponse,
)
from kinesis_publishers.aws.carriers.choice import check_carrier, create_carrier

__all__ = [
    "Endpoint",
    "SignedCall",
    "SubscriptionCarrier",
    "SubscriptionResponse",
    "check_carrier",
    "create_carrier",
]
