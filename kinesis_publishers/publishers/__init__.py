"""The record publishers; they never import one another."""
