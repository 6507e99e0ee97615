"""`headrace serve`: coming up, refusing to, and going down."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from headrace.broker import Broker
from headrace.storage.disk.doctor.doctor import examine
from tests.cli.processes import PATIENCE_SECONDS, Server, eventually, execute, headrace

UNFINISHED = (
    b"POST /v1/topics HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
)


def until_taken_up(server: Server) -> None:
    """Wait until all that was sent before is under way: one loop takes requests up in the order in which they came."""
    assert server.get("/health/live").status_code == 200


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def test_coming_up_and_going_down(tmp_path: Path) -> None:
    with Server(tmp_path / "store", installed=True) as server:
        assert re.fullmatch(
            r"headrace \S+ is ready on http://127\.0\.0\.1:\d+ and headrace://127\.0\.0\.1:\d+"
            rf" with store file:{tmp_path}/store",
            server.ready,
        )
        assert server.get("/health/ready").status_code == 200
        assert server.stop() == 0
        assert server.out.read() == ""
        logged = [json.loads(line) for line in server.err.splitlines()]
    assert [entry["message"] for entry in logged] == ["all requests finished, closing the store", "stopped"]
    assert set(logged[0]) == {"time", "level", "logger", "message"}
    assert examine(tmp_path / "store").findings == []


def test_ctrl_c_is_a_stop_like_any_other(tmp_path: Path) -> None:
    with Server(tmp_path / "store", "--log-format", "text", "--log-level", "warning") as server:
        assert server.stop(signal.SIGINT) == 0
        assert server.err == ""


def test_the_defaults(tmp_path: Path) -> None:
    """In an empty directory, without any argument; the port may be taken on this machine."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 7070))
            taken.listen()
        except OSError:
            pass
        line = execute("serve", cwd=tmp_path).refused(2)
    assert "cannot listen on 127.0.0.1:7070" in line
    # Nothing was made by a server that did not come up.
    assert list(tmp_path.iterdir()) == []


def test_reasons_not_to_start(tmp_path: Path) -> None:
    with Server(tmp_path / "store") as server:
        taken = server.url.removeprefix("http://")
        line = headrace("serve", "--store", f"file:{tmp_path}/other", "--http", taken).refused(2)
        assert f"cannot listen on {taken}: Address already in use" in line
        line = headrace("serve", "--store", f"file:{tmp_path}/store", "--http", "127.0.0.1:0").refused(2)
        assert f"process {server.process.pid} has it open" in line
    store = ("--store", f"file:{tmp_path}/fresh")
    refusals = [
        (("serve", *store, "--http", "0.0.0.0:0"), "headrace token create"),
        (("serve", *store, "--http", "nowhere"), "http is 'nowhere': write it as HOST:PORT"),
        (("serve", *store, "--flight", "nowhere"), "flight is 'nowhere': write it as HOST:PORT"),
        (("serve", *store, "--http", "no.such.host.invalid:0"), "cannot listen on"),
        (("serve", "--store", "mysql:x", "--http", "127.0.0.1:0"), "it must begin with file:, postgresql: or memory:"),
        (("serve", "--store", f"file:{tmp_path}/x?colour=red", "--http", "127.0.0.1:0"), "colour"),
        (("serve", *store, "--log-level", "loud"), "log_level"),
        (("serve", *store, "--set", "broker.size=1"), "unknown setting 'broker.size'"),
        (("serve", *store, "--config", f"{tmp_path}/none.toml"), "cannot be read"),
        (("serve", *store, "--colour", "red"), "--colour"),
        (("serve", *store, "--tls-key", "key.pem", "--http", "127.0.0.1:0"), "TLS needs both"),
    ]
    for arguments, told in refusals:
        assert told in headrace(*arguments).refused(2), arguments


def test_a_store_in_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    line = headrace("serve", "--store", f"file:{tmp_path}/file/store", "--http", "127.0.0.1:0").refused(2)
    assert "cannot serve" in line


def test_a_store_in_memory() -> None:
    """Nothing to set up at all, for trying things."""
    with Server("memory:") as server:
        assert server.run("topic", "create", "orders").code == 0
        assert server.stop() == 0


def test_environment_and_file(tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text('access_log = true\nlog_level = "debug"\nlog_format = "text"\n')
    variables = {
        "HEADRACE_CONFIG": str(tmp_path / "headrace.toml"),
        "HEADRACE_LOG_FORMAT": "json",
        "HEADRACE_STROE": "x",
    }
    with Server(tmp_path / "store", variables=variables) as server:
        server.get("/health/live", headers={"Authorization": "Bearer hr_0123456789ab_secretsecretsecret"})
        server.get("/v1/topics/hr_0123456789ab_secretsecretsecret")
        assert server.stop() == 0
        logged = [json.loads(line) for line in server.err.splitlines()]
        assert "secretsecret" not in server.err
    requests = [entry for entry in logged if entry["logger"] == "uvicorn.access"]
    assert [(entry["method"], entry["path"], entry["status"]) for entry in requests] == [
        ("GET", "/health/live", 200),
        ("GET", "/v1/topics/hr_0123456789ab_***", 404),
    ]
    warnings = [entry["message"] for entry in logged if entry["level"] == "warning"]
    assert warnings == ["HEADRACE_STROE is not a setting and was ignored: did you mean HEADRACE_STORE?"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_under_load_loses_nothing_that_was_acknowledged(tmp_path: Path, number: signal.Signals) -> None:
    acknowledged: list[str] = []
    outcomes: set[str] = set()

    def publish(worker: int, url: str) -> None:
        with httpx.Client(base_url=url, timeout=PATIENCE_SECONDS) as client:
            for count in range(100_000):
                value = f"{worker}-{count}"
                try:
                    answer = client.post("/v1/topics/orders/messages", json={"messages": [{"value": value}] * 3})
                except httpx.TransportError:
                    return
                outcomes.add(str(answer.status_code))
                if answer.status_code == 200:
                    acknowledged.append(value)

    with Server(tmp_path / "store") as server:
        server.run("topic", "create", "orders", "--partitions", "3")
        workers = [threading.Thread(target=publish, args=(worker, server.url)) for worker in range(8)]
        for worker in workers:
            worker.start()
        eventually(lambda: len(acknowledged) > 200)
        assert server.stop(number) == 0
        for worker in workers:
            worker.join(PATIENCE_SECONDS)
    assert outcomes == {"200"}
    assert examine(tmp_path / "store").findings == []
    with Broker.open(f"file:{tmp_path}/store") as broker:
        kept: list[bytes] = []
        for partition, (start, end) in broker.offsets("orders").items():
            while start < end:
                batch = broker.fetch("orders", partition, start)
                kept += batch["value"].to_pylist()
                start += batch.num_rows
    counts = {value: kept.count(value.encode()) for value in acknowledged[-200:]}
    assert set(counts.values()) == {3}


def test_a_stop_does_not_wait_for_those_who_wait(tmp_path: Path) -> None:
    with Server(tmp_path / "store") as server:
        server.run("topic", "create", "orders")
        with (
            socket.create_connection(("127.0.0.1", server.port)) as waiting,
            socket.create_connection(("127.0.0.1", server.port)) as idle,
            httpx.stream("GET", f"{server.url}/v1/topics/orders/events", timeout=PATIENCE_SECONDS) as events,
        ):
            path = b"/v1/topics/orders/partitions/0/messages?offset=0&wait_seconds=50"
            waiting.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
            idle.sendall(b"GET /health/live HTTP/1.1\r\nHos")
            assert events.status_code == 200
            until_taken_up(server)
            started = time.monotonic()
            assert server.stop() == 0
            # A stop waits half a minute at most, and the poll waits for longer.
            assert time.monotonic() - started < 25
            events.read()
            waiting.settimeout(PATIENCE_SECONDS)
            assert waiting.recv(12) in (b"HTTP/1.1 200", b"HTTP/1.1 503")


def test_a_second_signal_ends_the_waiting(tmp_path: Path) -> None:
    with Server(tmp_path / "store") as server:
        with socket.create_connection(("127.0.0.1", server.port)) as stuck:
            # A body that never comes: the request was accepted, so a stop waits for it.
            stuck.sendall(UNFINISHED)
            until_taken_up(server)
            server.process.send_signal(signal.SIGTERM)
            eventually(lambda: not is_listening(server.port))
            assert server.process.poll() is None
            assert server.stop(signal.SIGTERM) == 0
        assert examine(tmp_path / "store").findings == []


def test_a_stop_waits_no_longer_than_its_timeout(tmp_path: Path) -> None:
    with (
        Server(tmp_path / "store", "--set", "stop_seconds=2") as server,
        socket.create_connection(("127.0.0.1", server.port)) as stuck,
    ):
        stuck.sendall(UNFINISHED)
        until_taken_up(server)
        started = time.monotonic()
        assert server.stop() == 0
        # Unless told otherwise it waits for thirty seconds.
        assert time.monotonic() - started < 25


def test_connections_on_which_nothing_comes_are_closed(tmp_path: Path) -> None:
    with Server(tmp_path / "store", "--fixed", "port.idle_seconds_max=0.5") as server:
        port = server.port
        with (
            socket.create_connection(("127.0.0.1", port)) as silent,
            socket.create_connection(("127.0.0.1", port)) as half,
        ):
            half.sendall(b"GET /health/live HTTP/1.1\r\nHost")
            with answered(port) as polite:
                polite.sendall(b"GET /hea")
                for connection in (silent, half, polite):
                    connection.settimeout(PATIENCE_SECONDS)
                    assert connection.recv(4096) == b""


def answered(port: int) -> socket.socket:
    """A connection on which a request was answered; another if this one was closed before the request was sent."""
    while True:
        connection = socket.create_connection(("127.0.0.1", port))
        connection.settimeout(PATIENCE_SECONDS)
        connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        while part := connection.recv(4096):
            answer += part
            if answer.endswith(b"}"):
                return connection
        connection.close()


def test_systemd_is_notified(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE_SECONDS)
        with Server(tmp_path / "store", variables={"NOTIFY_SOCKET": str(tmp_path / "notify")}) as server:
            assert manager.recv(100) == b"READY=1"
            assert server.stop() == 0
            assert manager.recv(100) == b"STOPPING=1"


def test_threads_that_compute_let_the_event_loops_have_their_turn_soon() -> None:
    """By Python's default they keep it waiting 5 ms, several times for each call."""
    refused = """
from headrace.cli.exits import Failure
from headrace.cli.server import process
from headrace.cli.server.settings import ServeSettings
try:
    process.run(ServeSettings(tls_key="none"), {}, {})
except Failure:
    print(process.sys.getswitchinterval())
"""
    ended = subprocess.run([sys.executable, "-c", refused], capture_output=True, text=True, check=True)
    assert float(ended.stdout) == pytest.approx(0.001)
