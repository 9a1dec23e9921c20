"""The extent of a run, and the folder of its files."""

import tempfile

import msgspec


class Settings(msgspec.Struct, frozen=True):
    """The settings of a run: *quick* only checks that everything works."""

    root: str
    quick: bool = False

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return 1 if self.quick else 9

    def count(self, count: int, least: int = 1) -> int:
        """Return how many of *count* repetitions to do."""
        return max(least, count // 50) if self.quick else count

    def seconds(self, seconds: float) -> float:
        """Return for how long to measure instead of *seconds*."""
        return min(0.3, seconds) if self.quick else seconds

    def folder(self, name: str) -> str:
        """Return a new folder."""
        return tempfile.mkdtemp(prefix=f"{name}-", dir=self.root)
