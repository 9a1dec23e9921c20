"""How thorough a run is, and where its files are."""

import tempfile

import msgspec


class Settings(msgspec.Struct, frozen=True):
    """A run: *quick* only shows that everything works."""

    root: str
    quick: bool = False

    @property
    def rounds(self) -> int:
        """How often each contestant's turn comes."""
        return 1 if self.quick else 9

    def count(self, count: int, least: int = 1) -> int:
        """How many of *count* things to do."""
        return max(least, count // 50) if self.quick else count

    def seconds(self, seconds: float) -> float:
        """How long to look at something that should be looked at for *seconds*."""
        return min(0.3, seconds) if self.quick else seconds

    def folder(self, name: str) -> str:
        """A new folder."""
        return tempfile.mkdtemp(prefix=f"{name}-", dir=self.root)
