"""What all groups of commands have in common; it imports nothing else, for ``--help`` is quick."""

from __future__ import annotations

from difflib import get_close_matches

import click


class SuggestingGroup(click.Group):
    """A group that names the command that is nearest to an unknown one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which one may be meant."""
        names = self.list_commands(ctx)
        if args and args[0] not in names and (near := get_close_matches(args[0], names, n=1)):
            ctx.fail(f"No such command {args[0]!r}; did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)
