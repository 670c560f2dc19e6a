"""Fleets: formulas, queues, hardware, step times, simulator and planner; standard library only."""
