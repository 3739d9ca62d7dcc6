"""What every way to roll back can do."""

from typing import Any, ClassVar, Protocol


class Part(Protocol):
    """One of mlx-lm's caches that holds rows itself, with the way it goes back.

    `drops_rows` is False where rows cannot be taken out: such a cache is restored to what it was
    before a pass, and the rows to keep are fed again. `by_length` is True where any number of rows
    can be dropped at any time.
    """

    method: ClassVar[str]
    drops_rows: ClassVar[bool]
    by_length: ClassVar[bool]

    def can_drop(self, count: int) -> bool:
        """Return whether the last `count` rows can be dropped, now and without loss."""

    def drop(self, count: int) -> None:
        """Drop the last `count` rows.

        Raises RollbackError where that is not possible.
        """

    def save(self) -> Any:
        """Return what `restore` needs: references, no copies of arrays."""

    def restore(self, saved: Any) -> None:
        """Go back to what was saved; rows that were fed after it are gone."""
