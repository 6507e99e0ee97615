"""`python -m tests.hostile.fuzz`: a million spoiled requests of all protocols, against servers with tokens.

For each protocol a server of its own: a victim does what it should, first alone and then beside the inputs, which are
as many as the server takes. Printed are how long its calls took, what the server took of memory and of the processor,
and faults: a server that ended, a traceback in its log, more memory than the bound. Any of them makes the exit code 1.
An input depends on the seed and its number alone: `--only kafka --seed S --first N --inputs 100` sends those again that
were sent before a fault.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

import grpc

from bench.report import percentiles_ms
from tests.hostile.cursus_requests import CursusInputs
from tests.hostile.fuzz_inputs import FlightCall, FlightInputs, HttpInputs, KafkaInputs, NativeInputs
from tests.hostile.target import Address, Target
from tests.hostile.victim import Victim, Waits
from tests.hostile.ydb_requests import YdbCallInput, YdbInputs

MIB: Final = 1 << 20
# Of all inputs: what each protocol gets of a hundred.
SHARES: Final = {"kafka": 35, "http": 25, "flight": 10, "native": 10, "ydb": 10, "cursus": 10}
# So many that the server has work while one connection in seven waits for an answer that does not come.
CONCURRENT: Final = 256
# Looking whether the server runs costs a fifth of an input.
LOOK_AFTER: Final = 16
# How long an answer is waited for; an input may well be half a request.
ANSWER_SECONDS: Final = 0.25
# Of a hundred connections: cut off, left as they are for a while, or closed for writing at once. The ports of Kafka and
# of the native wire serve what came before such an end; over HTTP a client that ends has left.
CUT, LEFT = 5, 3
ENDED: Final = {"kafka": 80, "http": 20, "native": 80, "cursus": 80}
MEMORY_BYTES_MAX: Final = 1536 * MIB
SHOWN: Final = 20

Send = Callable[[Random], Awaitable[None]]


@dataclass
class Outcome:
    """What was seen of one protocol."""

    inputs: int = 0
    seconds: float = 0.0
    processor_seconds: float = 0.0
    memory_bytes: list[int] = field(default_factory=list)
    alone: dict[str, Waits] = field(default_factory=dict)
    beside: dict[str, Waits] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    log: str = ""


def sender_of_bytes(port: int, made: Callable[[Random], bytes], ended: int) -> Send:
    """Sends an input over a connection of its own, and reads what comes."""

    async def send(random: Random) -> None:
        data, way = made(random), random.randrange(100)
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    writer.write(data)
                    if way < CUT:
                        return
                    if way < CUT + LEFT:
                        await asyncio.sleep(ANSWER_SECONDS)
                    elif way < CUT + LEFT + ended:
                        writer.write_eof()
                    while await reader.read(MIB):
                        pass
            except TimeoutError:
                pass
            finally:
                writer.transport.abort()

    return send


def sender_of_calls(port: int, header: tuple[str, str], made: Callable[[Random], FlightCall | YdbCallInput]) -> Send:
    """Sends a call, and reads what comes."""
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.max_send_message_length", -1)])

    async def send(random: Random) -> None:
        call = made(random)
        method = channel.stream_stream(call.method)
        with suppress(grpc.RpcError, asyncio.CancelledError):
            sent = method(iter(call.messages), timeout=ANSWER_SECONDS, metadata=(header,) if call.has_token else None)
            async for _ in sent:
                pass

    return send


def sender(protocol: str, address: Address) -> Send:
    """What sends inputs of a protocol."""
    if protocol == "kafka":
        return sender_of_bytes(address.kafka, KafkaInputs(address).made, ENDED[protocol])
    if protocol == "cursus":
        return sender_of_bytes(address.cursus, CursusInputs(address).made, ENDED[protocol])
    if protocol == "http":
        return sender_of_bytes(address.http, HttpInputs(address).made, ENDED[protocol])
    if protocol == "native":
        return sender_of_bytes(address.native, NativeInputs(address).made, ENDED[protocol])
    token = address.tokens["attacker"]
    if protocol == "ydb":
        return sender_of_calls(address.ydb, ("x-ydb-auth-ticket", token), YdbInputs(address).made)
    return sender_of_calls(address.flight, ("authorization", f"Bearer {token}"), FlightInputs(address).made)


async def send_all(protocol: str, address: Address, seed: int, numbers: range) -> int:
    """Send inputs, many at a time, until all are sent or the server has ended; how many were."""
    send, left, sent = sender(protocol, address), iter(numbers), 0

    async def work() -> None:
        nonlocal sent
        for number in left:
            if number % LOOK_AFTER == 0 and not address.is_running:
                return
            await send(Random(f"{seed} {protocol} {number}"))
            sent += 1
            if sent % max(1, len(numbers) // 10) == 0:
                print(f"  {sent:,} inputs, {address.memory_bytes() / MIB:,.0f} MiB", flush=True)

    await asyncio.gather(*(work() for _ in range(CONCURRENT)))
    return sent


def attack(protocol: str, seed: int, numbers: range, alone_seconds: float, directory: Path) -> Outcome:
    """All inputs of one protocol, against a server of its own."""
    outcome = Outcome()
    with Target(directory, "--log-format", "text", installed=True) as target:
        address = target.address
        with Victim(address) as victim:
            victim.waits()
            time.sleep(alone_seconds)
            outcome.alone = victim.waits()
            address.forget_peak()
            outcome.memory_bytes.append(address.memory_bytes())
            began, used = time.monotonic(), address.processor_seconds()
            outcome.inputs = asyncio.run(send_all(protocol, address, seed, numbers))
            outcome.seconds = time.monotonic() - began
            if address.is_running:
                outcome.processor_seconds = address.processor_seconds() - used
            outcome.beside = victim.waits()
        outcome.faults = list(faults(target, numbers.start + outcome.inputs))
        outcome.log = target.log
        if address.is_running:
            outcome.memory_bytes += [address.memory_bytes("VmHWM"), address.memory_bytes()]
            if outcome.memory_bytes[1] > MEMORY_BYTES_MAX:
                outcome.faults.append(f"it took more than {MEMORY_BYTES_MAX / MIB:,.0f} MiB")
    return outcome


def faults(target: Target, number: int) -> Iterator[str]:
    """What no input may cause."""
    if not target.address.is_running:
        yield f"the server ended near input {number:,} with {target.exit_code}"
    for (error, place), count in tracebacks(target.log).most_common(SHOWN):
        yield f"{count} times {error} at {place}"


def tracebacks(log: str) -> Counter[tuple[str, str]]:
    """Kinds of errors with the line of code that raised them, and how often each is in a log."""
    found: Counter[tuple[str, str]] = Counter()
    place, last = None, ("", "")
    for line in log.splitlines():
        if line.startswith("Traceback"):
            place = ""
        elif place is not None and line.startswith("  File"):
            place = line.strip()
        elif place is not None and not line.startswith(" "):
            last, place = (line.partition(":")[0], place), None
            found[last] += 1
        elif line.startswith(("During handling of", "The above exception")):
            # One error, which is logged as the next one.
            found[last] -= 1
    return +found


def show(protocol: str, outcome: Outcome) -> None:
    """Print what was seen."""
    rate = outcome.inputs / max(outcome.seconds, 1e-9)
    memory = " MiB, ".join(f"{each / MIB:,.0f}" for each in outcome.memory_bytes)
    share = outcome.processor_seconds / max(outcome.seconds, 1e-9)
    print(f"{protocol}: {outcome.inputs:,} inputs in {outcome.seconds:,.0f} s ({rate:,.0f}/s, {share:.0%} of a core)")
    print(f"  memory at the start, at most, at the end: {memory} MiB")
    for name, alone in outcome.alone.items():
        beside = outcome.beside[name]
        print(f"  {name:<16} alone {shown(alone)}   beside the inputs {shown(beside)}, {len(beside.errors)} errors")
    for told in outcome.faults:
        print(f"  FAULT: {told}")


def shown(waits: Waits) -> str:
    """Percentiles of calls."""
    if not waits.calls:
        return "nothing"
    each = percentiles_ms(waits.calls)
    return f"p50 {each['p50']:.1f} p99 {each['p99']:.1f} max {max(waits.calls) * 1e3:.0f} ms"


def main() -> int:
    """Run a campaign; 1 if there was a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000, help="over all protocols")
    parser.add_argument("--only", choices=SHARES, help="all of them over one protocol")
    parser.add_argument("--first", type=int, default=0, help="the number of the first input")
    parser.add_argument("--seed", type=int, default=None, help="repeat the inputs of another campaign")
    parser.add_argument("--alone", type=float, default=10.0, help="seconds that the victim is watched before")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()), help="for stores")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    shares = {given.only: 100} if given.only else SHARES
    print(f"fuzz campaign with seed {seed}: {given.inputs:,} inputs", flush=True)
    outcomes = []
    for protocol, share in shares.items():
        numbers = range(given.first, given.first + given.inputs * share // 100)
        with tempfile.TemporaryDirectory(prefix="headrace-fuzz-", dir=given.directory) as directory:
            outcomes.append(attack(protocol, seed, numbers, given.alone, Path(directory)))
        show(protocol, outcomes[-1])
        if outcomes[-1].faults:
            log = given.directory / f"headrace-fuzz-{protocol}-{seed}.log"
            log.write_text(outcomes[-1].log)
            print(f"  what the server said is in {log}")
    return int(any(outcome.faults for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
