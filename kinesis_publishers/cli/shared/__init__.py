"""What commands share. Here, what all groups do: it imports little, which keeps ``--help`` fast."""

from __future__ import annotations

import click


class SuggestingGroup(click.Group):
    """A group that names the command that is nearest to an unknown one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None:
            from difflib import get_close_matches

            if near := get_close_matches(args[0], self.list_commands(ctx), n=1):
                ctx.fail(f"No such command {args[0]!r}; did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)
