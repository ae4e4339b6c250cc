"""Carries SubscribeToShard calls that are signed, over one HTTP client or another."""
