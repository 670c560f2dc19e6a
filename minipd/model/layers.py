"""The three small functions of a decoder layer that are not a matrix product."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Scale each row to a root mean square of 1, then by `weight` (arXiv:1910.07467).

    `x` is (..., n), `weight` (n,). The norm is taken in float32 whatever the dtype of `x`; the
    Euclidean norm is used because one fused kernel computes it, and mean(x^2) = norm^2 / n.
    """
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)  # (..., 1)
    floor = torch.full_like(norm, eps)  # (..., 1)
    scale = floor.addcmul_(norm, norm, value=1.0 / x.shape[-1]).rsqrt_()  # (..., 1)
    return (x * scale).to(x.dtype).mul_(weight)  # (..., n)


def rotate(x: Tensor, turns: Tensor) -> Tensor:
    """Rotary position embedding (arXiv:2104.09864): numbers 2i and 2i + 1 of a head are one point
    in a plane, which is turned by an angle that grows with the position.

    A turn is a multiplication by a complex number of length 1, done in float32 whatever the dtype
    of `x` (T, heads, D). `turns` is complex (T, 1, D/2).
    """
    points = x.float().view(torch.complex64)  # (T, heads, D/2)
    return (points * turns).view(torch.float32).to(x.dtype)  # (T, heads, D)


def swiglu(gate_up: Tensor) -> Tensor:
    """`silu(gate) * up` (arXiv:2002.05202), written over the first half of `gate_up` (T, 2F)."""
    gate, up = gate_up.chunk(2, dim=-1)  # (T, F) each
    return F.silu(gate, inplace=True).mul_(up)  # (T, F)
