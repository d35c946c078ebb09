"""The `skidway` command. Each command's module imports what it works with when it runs, so that `--help` is quick."""
