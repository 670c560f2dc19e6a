"""How long devices need to exchange what one step makes them exchange.

Ring forms (Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
MPICH", 2005): of n devices each sends and receives the stated bytes over its own link. Latency
grows with the number of rounds of a tree, log2 n.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from minipd.fleet.gpus import Device


@dataclass(frozen=True, slots=True)
class Link:
    """Reached bytes/s of one direction of one device's link, and seconds per round."""

    bytes_per_s: float
    latency_s: float


def rounds(devices: int) -> float:
    """Rounds of a tree over `devices`: none for one device, at least one from two on."""
    return math.log2(devices) if devices > 1 else 0.0


def spec_rate(device: Device, devices: int) -> float:
    """Bytes/s that the hardware promises between `devices`: its fast link while they share one."""
    return device.link_bytes_per_s if devices <= device.link_devices else device.network_bytes_per_s


def all_reduce_bytes(num_bytes: float, devices: int) -> float:
    """Sent by each device so that all hold the sum: reduce-scatter, then all-gather, of
    `(n - 1) / n` of the bytes each."""
    return 2.0 * (devices - 1) / devices * num_bytes


def all_to_all_bytes(num_bytes: float, devices: int, copies: int, per_node: int) -> float:
    """Sent by each device over its slower link when every token goes to `copies` random experts.

    Within one node each copy that leaves the device is a transfer: `(n - 1) / n` of the bytes. Over
    several nodes a token crosses the network once per *node* that holds some of its experts, and is
    spread there (DeepEP, and DeepSeek-V3, arXiv 2412.19437, section 3.2.2): of m nodes it meets
    `(m - 1) (1 - (1 - 1 / m) ** copies)` others on average, in place of `copies`.
    """
    if devices <= per_node:
        return (devices - 1) / devices * num_bytes
    nodes = devices / per_node
    met = (nodes - 1) * (1.0 - (1.0 - 1.0 / nodes) ** copies)
    return num_bytes / copies * met


def all_reduce_s(num_bytes: float, devices: int, link: Link) -> float:
    """Tensor parallelism: twice per layer, on the hidden states of every token in the step."""
    if devices <= 1:
        return 0.0
    return (
        rounds(devices) * link.latency_s + all_reduce_bytes(num_bytes, devices) / link.bytes_per_s
    )


def all_to_all_s(num_bytes: float, devices: int, copies: int, per_node: int, link: Link) -> float:
    """Expert parallelism: twice per layer, tokens out to their experts and results back."""
    if devices <= 1:
        return 0.0
    sent = all_to_all_bytes(num_bytes, devices, copies, per_node)
    return rounds(devices) * link.latency_s + sent / link.bytes_per_s


def send_s(num_bytes: float, link: Link) -> float:
    """Pipeline parallelism: once per boundary between stages."""
    return link.latency_s + num_bytes / link.bytes_per_s
