"""What stands for the caches of all texts of a pass, layer by layer.

A model asks it for positions and masks, hands it keys and values, and gets states of it. What comes
back goes on to one of the functions of `seams`, which find in it the parts of each text. Keys,
values and masks of latent attention in one text are also what they look like: a class computes with
them itself. Otherwise there are no numbers in them, so that nothing plausible comes of that.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache

from akunu_py.models.attention import Attend
from akunu_py.models.passes.plan import PassPlan, by_row
from akunu_py.system.errors import ContractError


class Apart(mx.array):
    """A value for each text: keys, values, a mask, scores, or a state."""

    parts: Any
    caches: "RowsCache"

    @classmethod
    def of(cls, parts: Sequence[Any], caches: "RowsCache", whole: Any = mx.nan) -> Self:
        made = cls(whole)
        made.parts, made.caches = parts, caches
        return made


class Latents(Apart):
    """Latent keys and values of several texts: scores are computed before attention is called.

    Python asks the right side of a product first where its class is derived from the left one's.
    """

    masks: list[Any]
    """What the rows of each text see of them, [n, keys]."""

    @classmethod
    def of(cls, parts: Sequence[Any], caches: "RowsCache", whole: Any = mx.nan) -> Self:
        made = super().of(list(parts), caches, whole)
        made.masks = list(caches.plan.latent_masks)
        return made

    def choose(self, number: int, keys: mx.array) -> None:
        """Keep keys [n, 1, 1, k] of one text, others for each row."""
        part, seen = self.parts[number], self.masks[number]
        at = mx.broadcast_to(keys.swapaxes(2, 3), (*keys.shape[:2], keys.shape[3], part.shape[3]))
        self.parts[number] = mx.take_along_axis(part, at, axis=2)
        if seen is not None:
            self.masks[number] = mx.take_along_axis(seen, keys[:, 0, 0], axis=1)

    def swapaxes(self, *axes: int) -> "Latents":  # type: ignore[override]
        turned = Latents.of([part.swapaxes(*axes) for part in self.parts], self.caches)
        turned.masks = self.masks
        return turned

    def __rmatmul__(self, left: mx.array) -> Apart:
        """Return scores [n, heads, 1, keys] of each text, with its mask."""
        rows = self.caches.plan.split(left, 0)
        texts = zip(rows, self.parts, self.masks, strict=True)
        scores = []
        for own, turned, seen in texts:
            product = own @ turned
            if seen is not None:
                product = mx.where(seen[:, None, None], product, mx.finfo(product.dtype).min)
            scores.append(product)
        return Apart.of(scores, self.caches)


class PartRows(NamedTuple):
    """Keys, values or a mask of several texts, which a class hands on, at most in another type."""

    parts: Sequence[Any]
    caches: "RowsCache"

    @property
    def dtype(self) -> Any:
        return self.parts[0].dtype

    def astype(self, kind: mx.Dtype) -> "PartRows":
        return PartRows([part.astype(kind) for part in self.parts], self.caches)


Held = Apart | PartRows


def _depended_on(name: str) -> Any:
    """Return what some classes make depend on others; with several texts no more than that."""

    def read(caches: "RowsCache") -> mx.array:
        held: list[mx.array] = [getattr(part, name) for part in caches.parts]
        return mx.depends(mx.array(mx.nan), held) if held[1:] else held[0]

    def write(caches: "RowsCache", value: mx.array) -> None:
        for part in caches.parts:
            own = value if len(caches.parts) == 1 else mx.depends(getattr(part, name), value)
            setattr(part, name, own)

    return property(read, write)


class RowsCache:
    """Stands for one cache of every text."""

    lengths = left_padding = None

    def __init__(self, plan: PassPlan, parts: Sequence[Any], latent: bool) -> None:
        self.plan, self.parts, self.latent = plan, parts, latent
        self._alone = len(parts) == 1
        # Now, before a cache takes in rows.
        self.offset = plan.places
        # What stands for the members of lists of caches, by place.
        self._inner: dict[int, RowsCache] = {}
        # Whether it took in rows that attention has not seen yet.
        self._unseen = False

    def check(self) -> None:
        """Raise ContractError where a model has used it past the functions of `seams`."""
        for inner in self._inner.values():
            inner.check()
        if self._unseen:
            kind = type(self.parts[0]).__name__
            raise ContractError(f"a {kind} was used past every known function")

    def __bool__(self) -> bool:
        return True

    keys, values = _depended_on("keys"), _depended_on("values")

    def make_mask(self, _rows: int, **options: Any) -> Held | None:
        if not hasattr(self.parts[0], "update_and_fetch"):
            # A padding of batches.
            return None
        if not self.latent:
            return PartRows(self.plan.masks(self.parts, **options), self)
        if options.get("window_size") is not None:
            raise ContractError("latent attention with a window")
        masks = self.plan.masks(self.parts, **{**options, "return_array": True})
        if self._alone:
            return self.seen(masks[0])
        # Scores are made with them: see `Latents`.
        self.plan.latent_masks = masks
        return None

    def seen(self, mask: mx.array | None) -> Apart | None:
        """Return a mask of one text, as its rows in a batch take it."""
        if mask is None:
            return None
        return Apart.of([mask], self, mask[:, None, None])

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Held, Held]:
        """Let each cache take in its rows of [rows, heads, 1, width]."""
        axis = self.plan.turned(2)
        keys_of = self.plan.split(by_row(keys, axis), axis)
        values_of = self.plan.split(by_row(values, axis), axis)
        self._unseen = not self._alone
        rows = zip(self.parts, keys_of, values_of, strict=True)
        return self._pair([own.update_and_fetch(k, v) for own, k, v in rows])

    def keys_and_values(self) -> tuple[Held, Held]:
        return self._pair([part.keys_and_values() for part in self.parts])

    def _pair(self, held: Sequence[tuple[Any, Any]]) -> tuple[Held, Held]:
        pair = self._held([keys for keys, _ in held]), self._held([values for _, values in held])
        self.plan.latents = [one for one in pair if isinstance(one, Latents)]
        return pair

    def _held(self, parts: Sequence[Any]) -> Held:
        if not self.latent:
            return PartRows(parts, self)
        sizes = zip(parts, self.plan.sizes, strict=True)
        parts = [mx.broadcast_to(part, (size, *part.shape[1:])) for part, size in sizes]
        return Apart.of(parts, self, parts[0]) if self._alone else Latents.of(parts, self)

    def attend(  # noqa: PLR0917 - those of mlx-lm's function
        self, attend: Attend, queries: mx.array, keys: Held, values: Held, scale: float, mask: Any,
        sinks: mx.array | None = None,
    ) -> mx.array:  # fmt: skip
        """Run attention for each text, with the arguments that the text alone would give.

        Rows of latent attention are a batch, so that each is computed as it is alone.
        """
        self._unseen = False
        axis = 0 if self.latent else self.plan.turned(2)
        rows = self.plan.split(by_row(queries, axis), axis)
        if isinstance(mask, Held):
            masks = mask.parts
        else:
            masks = [None if mask is None else by_row(mask, axis)] * len(rows)
        whole = zip(rows, keys.parts, values.parts, self.parts, masks, strict=True)
        found = [attend(own, k, v, cache, scale, seen, sinks) for own, k, v, cache, seen in whole]
        return by_row(found[0] if self._alone else mx.concatenate(found, axis=axis), axis)

    def __getitem__(self, key: Any) -> Any:
        found = [part[key] for part in self.parts]
        if not isinstance(found[0], mx.array | None):
            if key not in self._inner:
                self._inner[key] = self.standing(self.plan, found, self.latent)
            return self._inner[key]
        asked = self.plan.asked
        if asked and asked[0][0] is not self:
            asked.clear()
        if (self, key) not in asked:
            asked.append((self, key))
        known = next((one for one in found if one is not None), None)
        if known is None:
            return None
        # Whatever uses them past the functions of `seams` makes no numbers.
        nothing = mx.nan if mx.issubdtype(known.dtype, mx.floating) else 0
        return Apart.of(
            found, self, mx.full((self.plan.rows, *known.shape[1:]), nothing, known.dtype)
        )

    def __setitem__(self, key: Any, value: Any) -> None:
        # Windows were put there when the convolution ran, or will be.
        if isinstance(value, list):
            # New states of each text, as a step returns them.
            for part, own in zip(self.parts, value, strict=True):
                part[key] = own
        elif value.shape[0] == self.plan.rows and 1 in value.shape[1:3]:
            # A window of one row: the last one of each text.
            for part, end in zip(self.parts, self.plan.ends, strict=True):
                part[key] = value[end - 1 : end]

    def advance(self, _rows: int) -> None:
        """Take no note of rows in a padding of batches, which there is none of."""

    @staticmethod
    def standing(plan: PassPlan, layer: Sequence[Any], latent: bool) -> "RowsCache":
        """Return what stands for one layer's cache of every text."""
        kind = RowsStates if isinstance(layer[0], ArraysCache) else RowsCache
        return kind(plan, layer, latent)


class RowsStates(RowsCache, ArraysCache):  # type: ignore[misc]
    """Stands for states; some models ask for the class."""

    def __init__(self, plan: PassPlan, parts: Sequence[Any], latent: bool) -> None:
        super().__init__(plan, parts, latent)
        self._given = [list(part.cache) for part in parts]

    def check(self) -> None:
        self._unseen = any(
            new is old
            for part, before in zip(self.parts, self._given, strict=True)
            for old, new in zip(before, part.cache, strict=True)
        )
        super().check()
