"""The command line: ``kinesis-publishers``."""

import sys


def run() -> None:
    """Run the command line as a process, or say what it needs."""
    try:
        from kinesis_publishers.cli.main import run as run_main
    except ModuleNotFoundError as error:
        if error.name not in {"click", "rich"}:
            raise
        sys.exit(f"The command line needs {error.name}: pip install 'kinesis-publishers[cli]'")
    run_main()
