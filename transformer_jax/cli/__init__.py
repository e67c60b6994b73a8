"""One thin file per command: arguments in, a library call, an exit code out."""
