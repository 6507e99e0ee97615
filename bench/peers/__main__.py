"""Run the comparison: `python -m bench.peers [--messages N] [--plot FILE.png]`."""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.peers import processes
from bench.peers.headrace_peer import Headrace
from bench.peers.kafka_broker import Kafka
from bench.peers.nats_jetstream import NatsJetStream
from bench.peers.redis_streams import RedisStreams
from bench.peers.work import LATENCY_RATE, Missing, Peer, Result, measure
from bench.report import machine

PEERS: tuple[Peer, ...] = (
    Headrace(synced=True),
    RedisStreams(synced=True),
    NatsJetStream(synced=True),
    Kafka(synced=True),
    Headrace(synced=False),
    RedisStreams(synced=False),
    NatsJetStream(synced=False),
    Kafka(synced=False),
)


def main() -> None:
    """Measure every peer that is here, and print them as ratios to Headrace."""
    parser = argparse.ArgumentParser(description="Headrace beside its peers, the same work in one run.")
    parser.add_argument("--messages", type=int, default=200_000, help="how many are published and read")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long latency is measured")
    parser.add_argument("--directory", default=".", help="where the stores are put: choose the disk to measure")
    parser.add_argument("--plot", type=Path, help="write a picture, as PNG")
    arguments = parser.parse_args()
    print(
        f"{machine()}\n{arguments.messages:,} messages of 100 bytes; latency of single publishes at {LATENCY_RATE}/s\n"
    )
    results: list[Result] = []
    with TemporaryDirectory(dir=arguments.directory, prefix="bench-") as directory:
        for number, peer in enumerate(PEERS):
            try:
                results.append(
                    measure(peer, Path(directory).absolute() / str(number), arguments.messages, arguments.seconds)
                )
                print(f"  measured {peer.name}", flush=True)
            except Missing as missing:
                print(f"  missing: {missing}", flush=True)
            finally:
                processes.stop_all()
    print()
    for line in table(results):
        print(line)
    if arguments.plot is not None:
        plot(results, arguments.plot)


def table(results: list[Result]) -> list[str]:
    """The results, each as a number and as a ratio to the first."""
    first = results[0]
    lines = [
        "| | published/s | of Headrace | read/s | of Headrace | p50 ms | p99 ms |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for result in results:
        published = result.published_per_second / first.published_per_second
        read = result.read_per_second / first.read_per_second
        lines.append(
            f"| {result.name} | {result.published_per_second:,.0f} | {published:.3f} | {result.read_per_second:,.0f} "
            f"| {read:.3f} | {result.p50_ms:.2f} | {result.p99_ms:.2f} |"
        )
    return lines


def plot(results: list[Result], path: Path) -> None:
    """Throughput on a logarithmic scale, and latency, as bars."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = [result.name for result in results]
    figure, axes = pyplot.subplots(1, 3, figsize=(15, 4), layout="constrained", sharey=True)
    bars = (
        ("published, messages/s", [result.published_per_second for result in results], "log"),
        ("read, messages/s", [result.read_per_second for result in results], "log"),
        (f"latency at {LATENCY_RATE}/s, p50 and p99, ms", [result.p99_ms for result in results], "linear"),
    )
    for axis, (title, values, scale) in zip(axes, bars, strict=True):
        axis.barh(names, values, color="#9ecae1" if scale == "linear" else "#3182bd")
        axis.set_xscale(scale)
        if scale == "log":
            # The same beginning for all, which a logarithmic scale does not have by itself.
            axis.set_xlim(left=1_000)
        axis.set_title(title)
    axes[2].barh(names, [result.p50_ms for result in results], color="#3182bd")
    axes[0].invert_yaxis()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
