"""Metrics made of diagnostic events: tables, and the reporters that export them.

The package exports nothing: using one part does not load the tables for the others.
"""
