"""Python's loggers under the levels that Kafka's tools know."""

import logging

from skidway.ports import ROOT_LOGGER

_BELOW_DEBUG = 5
_NUMBERS = {
    "TRACE": _BELOW_DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_SHOWN = ("skidway", "asyncio")


class PythonLoggers:
    """The root, and every logger of this program and of its event loop that exists by now."""

    def levels(self) -> dict[str, str]:
        names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] in _SHOWN]
        return {name: _level(self._find(name)) for name in [ROOT_LOGGER, *names]}

    def set_level(self, name: str, level: str | None) -> None:
        self._find(name).setLevel(logging.NOTSET if level is None else _NUMBERS[level])

    @staticmethod
    def _find(name: str) -> logging.Logger:
        return logging.getLogger(None if name == ROOT_LOGGER else name)


def _level(logger: logging.Logger) -> str:
    number = logger.getEffectiveLevel()
    return next((level for level, least in _NUMBERS.items() if number <= least), "FATAL")
