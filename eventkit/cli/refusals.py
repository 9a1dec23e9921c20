"""Why a command ends without having done what it was asked."""


class Refused(Exception):
    """The command was not understood, or lacks something: exit code 2."""


class Failed(Exception):
    """The command was understood and came to nothing, or the answer is no: exit code 1."""
