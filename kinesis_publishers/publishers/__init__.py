"""The record publishers, one package each; they never import one another."""
