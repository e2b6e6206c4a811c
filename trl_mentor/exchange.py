"""The only file that calls a collective: every rank calls each method equally often, whatever it holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object

T = TypeVar("T")


class Exchange:
    """Objects between the ranks of one launch."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator

    @property
    def rank(self) -> int:
        return int(self._accelerator.process_index)

    @property
    def world_size(self) -> int:
        return int(self._accelerator.num_processes)

    @property
    def is_main(self) -> bool:
        return bool(self._accelerator.is_main_process)

    def gather(self, items: list[T]) -> list[T]:
        """Everybody's items in order of rank, on every rank; the lists may differ in length or be empty."""
        gathered: list[T] = gather_object(items)
        return gathered

    def total(self, value: int) -> int:
        """Sum over the ranks, on every rank."""
        return self.totals([value])[0]

    def totals(self, values: Sequence[int]) -> list[int]:
        """Sum of each value over the ranks, on every rank, at the price of one."""
        local = torch.tensor(values, device=self._accelerator.device, dtype=torch.long)
        summed: list[int] = self._accelerator.reduce(local, reduction="sum").tolist()
        return summed

    def from_main(self, produce: Callable[[], T]) -> T:
        """What `produce` returns on the main process, on every rank; only the main process calls it.

        If it raises there, every rank raises, so that none is left waiting.
        """
        error: Exception | None = None
        box: list[T | str | bool | None] = [None, False]
        if self.is_main:
            try:
                box = [produce(), True]
            except Exception as caught:  # re-raised below, once the others know
                error = caught
                box = [f"{type(caught).__name__}: {caught}", False]
        box = broadcast_object_list(box)
        if error is not None:
            raise error
        if not box[1]:
            raise RuntimeError(f"the main process failed: {box[0]}")
        return box[0]  # type: ignore[return-value]
