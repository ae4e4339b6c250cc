"""What every command uses: options, output, messages and the ways in which a command ends."""
