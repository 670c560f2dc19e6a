"""What came of a simulated run. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass, field

from minipd.measure.summary import RunSummary


@dataclass(slots=True)
class SimResult:
    """What came of a run. `refused` requests could never have been served and were left out."""

    summary: RunSummary
    num_workers: int
    num_devices: int
    refused: int = 0
    leaked_blocks: int = 0
    trunk_busy_s: float = 0.0
    notes: list[str] = field(default_factory=list[str])

    @property
    def goodput_per_device(self) -> float:
        return self.summary.goodput_per_s / self.num_devices

    def to_dict(self) -> dict[str, object]:
        return {
            "num_workers": self.num_workers,
            "num_devices": self.num_devices,
            "refused": self.refused,
            "leaked_blocks": self.leaked_blocks,
            "goodput_per_device": self.goodput_per_device,
            "trunk_busy_s": self.trunk_busy_s,
            "notes": self.notes,
            "summary": self.summary.to_dict(),
        }
