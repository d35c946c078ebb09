"""`skidway serve`: run a broker."""

from skidway.server import flags


def main(arguments: list[str]) -> int:
    return flags.main(arguments, program="skidway serve")
