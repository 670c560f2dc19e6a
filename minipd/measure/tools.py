"""One stream of tokens through other tools' definitions: same words, different numbers.

Facts section 4 lists the sources (vLLM `benchmarks/serve.py`, SGLang `bench_serving.py`, Triton
GenAI-Perf, AIPerf `metrics/types`, DistServe `structs.py`, llama-bench, and the papers of Mooncake
and Sarathi-Serve). A client sees *chunks*; one may carry no token (a role) or several. Seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from minipd.measure.ordering import in_order
from minipd.measure.quantiles import percentile
from minipd.timeline import Event


@dataclass(frozen=True, slots=True)
class Chunk:
    """One streamed piece: when it came, how many new tokens it carries, whether it shows text."""

    t_s: float
    tokens: int = 1
    has_text: bool = True


@dataclass(frozen=True, slots=True)
class Stream:
    """What a client saw of one answer; `start_s` is when it sent the request."""

    start_s: float
    chunks: tuple[Chunk, ...]
    prompt_tokens: int = 0

    def __post_init__(self) -> None:
        if not self.chunks:
            raise ValueError("A stream needs at least one chunk; leave failed requests out.")

    @property
    def output_tokens(self) -> int:
        return sum(chunk.tokens for chunk in self.chunks)

    @property
    def latency_s(self) -> float:
        return self.chunks[-1].t_s - self.start_s

    @property
    def gaps(self) -> list[tuple[float, int]]:
        """Seconds to each later chunk, and that chunk's tokens."""
        pairs = zip(self.chunks, self.chunks[1:], strict=False)
        return [(later.t_s - sooner.t_s, later.tokens) for sooner, later in pairs]


def streams(events: Iterable[Event]) -> list[Stream]:
    """A timeline as a client that gets every token by itself would have seen it."""
    arrived: dict[str, tuple[float, int]] = {}
    chunks: dict[str, list[Chunk]] = {}
    for event in in_order(events):
        if event.kind == "arrived":
            prompt = event.data.get("prompt_tokens", 0)
            arrived[event.request_id] = (event.t_s, prompt if isinstance(prompt, int) else 0)
        elif event.kind == "token" and event.request_id in arrived:
            chunks.setdefault(event.request_id, []).append(Chunk(event.t_s))
    return [Stream(arrived[i][0], tuple(seen), arrived[i][1]) for i, seen in chunks.items()]


def first_chunk_ttft(stream: Stream) -> float:
    """vLLM, GenAI-Perf, AIPerf: the first chunk counts, even one that only carries a role."""
    return stream.chunks[0].t_s - stream.start_s


def first_text_ttft(stream: Stream) -> float | None:
    """SGLang: the first chunk with text; None if there never was one."""
    return next((c.t_s - stream.start_s for c in stream.chunks if c.has_text), None)


def vllm_tpot(stream: Stream) -> float | None:
    """(latency - TTFT) / (tokens - 1); None for fewer than 2 tokens (its goodput counts 0)."""
    n = stream.output_tokens
    return (stream.latency_s - first_chunk_ttft(stream)) / (n - 1) if n > 1 else None


def vllm_itl(stream: Stream) -> list[float]:
    """One gap per chunk after the first, however many tokens it carries; pooled over requests."""
    return [gap_s for gap_s, _ in stream.gaps]


def sglang_itl(stream: Stream) -> list[float]:
    """Each gap shared among its chunk's tokens, once per token, from the first text on."""
    start = next((n for n, chunk in enumerate(stream.chunks) if chunk.has_text), 0)
    shown = Stream(stream.start_s, stream.chunks[start:])
    return [gap_s / tokens for gap_s, tokens in shown.gaps for _ in range(tokens)]


def genai_perf_itl(stream: Stream) -> list[float]:
    """Each gap over the tokens of the later response, once per response."""
    return [gap_s / tokens for gap_s, tokens in stream.gaps if tokens]


def aiperf_itl(stream: Stream) -> float | None:
    """What AIPerf and NIM call ITL is vLLM's TPOT; fewer than 2 tokens have no value."""
    return vllm_tpot(stream)


def aiperf_icl(stream: Stream) -> list[float]:
    """Inter-chunk latency: what vLLM calls ITL."""
    return vllm_itl(stream)


def aiperf_ttst(stream: Stream) -> float | None:
    """Time to second token: gap from the first response to the second."""
    return stream.chunks[1].t_s - stream.chunks[0].t_s if len(stream.chunks) > 1 else None


def aiperf_tokens_per_s_per_user(stream: Stream) -> float | None:
    itl_s = aiperf_itl(stream)
    return 1.0 / itl_s if itl_s else None


def aiperf_prefill_tokens_per_s(stream: Stream) -> float:
    """Prompt tokens over TTFT: queueing counts as prefill."""
    return stream.prompt_tokens / first_chunk_ttft(stream)


def aiperf_throughput(all_streams: Sequence[Stream]) -> float:
    """Output tokens over last response minus first request, tokens/s."""
    last_s = max(stream.chunks[-1].t_s for stream in all_streams)
    span_s = last_s - min(stream.start_s for stream in all_streams)
    return sum(stream.output_tokens for stream in all_streams) / span_s


def distserve_tpot(stream: Stream) -> float:
    """(last - first) / (n - 1), and 0 for a single token, which drags the mean down."""
    return vllm_tpot(stream) or 0.0


def mooncake_tbt(stream: Stream) -> float | None:
    """Mean of the longest 10 % of token intervals, rounded up; None without an interval."""
    gaps = sorted(sglang_itl(stream), reverse=True)
    longest = gaps[: -(-len(gaps) // 10)]
    return fmean(longest) if longest else None


def sarathi_p99_tbt(all_streams: Iterable[Stream]) -> float:
    """99th percentile over the intervals of all requests together."""
    return percentile([gap_s for stream in all_streams for gap_s in sglang_itl(stream)], 99)


def sglang_concurrency(all_streams: Sequence[Stream], duration_s: float) -> float:
    """Sum of latencies over the duration: the mean number of requests under way."""
    return sum(stream.latency_s for stream in all_streams) / duration_s


def vllm_meets(stream: Stream, ttft_s: float, tpot_s: float) -> bool:
    """vLLM's goodput rule: a single-token answer has TPOT 0 and passes."""
    return first_chunk_ttft(stream) <= ttft_s and (vllm_tpot(stream) or 0.0) <= tpot_s


def aiperf_meets(stream: Stream, ttft_s: float, itl_s: float) -> bool:
    """AIPerf's goodput rule: a single-token answer has no ITL and fails."""
    itl = aiperf_itl(stream)
    return itl is not None and first_chunk_ttft(stream) <= ttft_s and itl <= itl_s


def llama_bench(tokens: int, repetition_s: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation of the repetitions' *rates*, tokens/s.

    Not the rate of the mean time, which is lower as soon as repetitions differ.
    """
    rates = [tokens / seconds for seconds in repetition_s]
    return fmean(rates), stdev(rates) if len(rates) > 1 else 0.0
