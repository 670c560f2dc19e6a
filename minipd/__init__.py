"""minipd: a small LLM engine that reads (prefill) and writes (decode), measured apart.

`from minipd import LLM, SamplingParams` is the three-line API. Importing `minipd` itself is cheap:
torch is imported only when `LLM` is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minipd.request import SamplingParams

if TYPE_CHECKING:
    from minipd.llm import LLM

__version__ = "0.1.0"
__all__ = ["LLM", "SamplingParams", "__version__"]


def __getattr__(name: str) -> object:
    """Import `LLM`, and with it torch, on first use."""
    if name == "LLM":
        from minipd.llm import LLM

        return LLM
    raise AttributeError(f"module 'minipd' has no attribute {name!r}")
