"""Carries SubscribeToShard calls that aiobotocore has signed, over one HTTP client or another."""
