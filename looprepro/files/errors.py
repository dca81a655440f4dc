"""Errors that a user can act on: one line, the remedy, and the exit code that the command line returns for it."""

from __future__ import annotations


class LoopreproError(Exception):
    """An error with a remedy. ``str(error)`` is one line: what is wrong, then what to do about it."""

    exit_code = 1

    def __init__(self, message: str, remedy: str = "") -> None:
        self.message = " ".join(message.split())
        self.remedy = " ".join(remedy.split())
        super().__init__(f"{self.message}. {self.remedy}" if self.remedy else self.message)


class ConfigError(LoopreproError):
    """The request itself is wrong (unknown sweep, misspelt key, impossible value): nothing was run or submitted."""

    exit_code = 2


class StoreError(LoopreproError):
    """A file of ours cannot be written, read or trusted (full disk, permissions, bad checksum, hash collision)."""

    exit_code = 1


class IdentityCollision(StoreError):
    """A cell folder holds another configuration than the one that hashes to its name."""

    exit_code = 2


class SchedulerUnreachable(LoopreproError):
    """The cluster's scheduler does not answer: nothing is known about its jobs, so nothing is concluded."""

    exit_code = 3
