"""The code blocks of the pages, and how each is run: as a reader would, page by page and in order.

The fence of a block says what it is:

- `bash` and `python` are run, each block in a process of its own, all blocks of a page in one scratch directory.
- `output` is what the block before it printed, to the letter.
- `toml` is parsed; a pipeline is checked by the pipeline loader. If its first line is `# NAME.toml`, the block is saved
  under that name for the blocks after it.
- `sql` is run on the PostgreSQL that the server of the page uses.
- `text` is not run: drawings, commands that do not end, output that varies.

An HTTP error fails a block, whatever the options of its `curl`. A block that is there to show one has
`<!-- HTTP error -->` in the line before its fence, and must get one.

Not thread-safe: a `Scratch` belongs to one test.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psycopg

from headrace.spark.pipeline.definition.load import parse
from tests.cli.processes import ROOT, Server, environment
from tests.docs.counts import Record, counting

LANGUAGES: Final = frozenset({"bash", "python", "output", "toml", "sql", "text"})
# Pages that start Spark are run by tests/spark/test_pages.py, and these of them by tests/pipeline/test_pages.py.
PIPELINE_PAGES: Final = frozenset({"docs/pipelines.md", "docs/tables.md"})
SPARK_PAGES: Final = PIPELINE_PAGES | {"README.md", "docs/spark.md"}
BLOCK_SECONDS: Final = 300.0
_SHOWS_ERROR: Final = "<!-- HTTP error -->"
# What curl ends with when the answer was an error.
_HTTP_ERROR: Final = 22
_FENCE: Final = re.compile(r"^( *)(`{3,}|~{3,})(.*)$")
_FILE_NAME: Final = re.compile(r"^# ([\w-]+\.toml)\n")


@dataclass(frozen=True)
class Block:
    """A fenced block: where it stands, the word after its fence, and its text."""

    page: str
    line: int
    language: str
    text: str
    shows_error: bool = False

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """All pages, as paths from the root of the repository."""
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [str(file.relative_to(ROOT)) for file in files]


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return list(_parse(page, (ROOT / page).read_text()))


def _parse(page: str, text: str) -> Iterator[Block]:
    fence, start, language, lines, before = None, 0, "", list[str](), ""
    for number, line in enumerate(text.splitlines(), 1):
        found = _FENCE.match(line)
        if fence is None:
            if found:
                fence, start, language, lines = found, number, found[3].strip(), []
            else:
                before = line
        elif found and found[2].startswith(fence[2]) and not found[3].strip():
            yield Block(page, start, language, "".join(f"{line}\n" for line in lines), before == _SHOWS_ERROR)
            fence, before = None, ""
        else:
            lines.append(line.removeprefix(fence[1]))
    assert fence is None, f"{page}:{start}: this block never ends"


class Scratch:
    """A directory and a server in which the blocks of one page run."""

    def __init__(self, directory: Path, server: Server, database: psycopg.Connection | None = None) -> None:
        self.directory = directory
        self._server = server
        self._database = database
        # The pipelines of the repository call the broker SERVER.
        self._environment = environment(HEADRACE_URL=server.flight_url, SERVER=self.flight_url)
        self._environment["PATH"] = f"{Path(sys.executable).parent}:{self._environment['PATH']}"
        # Spark's own Python warns of its own sockets.
        self._environment.pop("PYTHONWARNINGS")
        self._printed = ""
        # For every curl, also one in a pipe.
        self._environment["CURL_HOME"] = str(directory)
        (directory / ".curlrc").write_text("fail-with-body\n")
        # A reader stands in the repository.
        for name in ("examples", "packaging", "pipelines"):
            (directory / name).symlink_to(ROOT / name)

    @property
    def flight_url(self) -> str:
        """The address of the page's server for Python and Spark."""
        return next(word for word in self._server.ready.split() if word.startswith("headrace:"))

    def addressed(self, text: str) -> str:
        """A text with the addresses of this page's server in place of the default ones."""
        http = self._server.url.removeprefix("http://")
        text = re.sub(r"(127\.0\.0\.1|localhost):7070", http, text)
        kafka = next((word for word in self._server.ready.split() if word.startswith("kafka:")), "")
        if kafka:
            text = text.replace("127.0.0.1:9092", kafka.removeprefix("kafka://"))
        ydb = next((word for word in self._server.ready.split() if word.startswith("ydb:")), "")
        if ydb:
            text = text.replace("127.0.0.1:2136", ydb.removeprefix("ydb://"))
        cursus = next((word for word in self._server.ready.split() if word.startswith("cursus:")), "")
        if cursus:
            text = text.replace("127.0.0.1:9000", cursus.removeprefix("cursus://"))
        return re.sub(r"(127\.0\.0\.1|localhost):7071", self.flight_url.removeprefix("headrace://"), text)

    def run_page(self, page: str, record: Record) -> None:
        """Run all blocks of a page and record how many; a failure names the block and shows what it printed."""
        found = [block for block in blocks(page) if block.language != "text"]
        with counting((block.language for block in found), record) as succeeded:
            for block in found:
                self.run(block)
                succeeded[block.language] += 1

    def run(self, block: Block) -> str:
        """Run one block; what it printed."""
        text = self.addressed(block.text)
        match block.language:
            case "bash" | "python":
                self._printed = self._finish(block)
            case "output":
                assert self._printed == block.text, f"{block}: the block before it printed something else"
            case "toml":
                self._save(text)
            case "sql":
                assert self._database is not None, f"{block}: this page has no database"
                self._database.execute(text.encode())
            case "text":
                pass
            case _:
                raise AssertionError(f"{block}: unknown fence {block.language!r}")
        return self._printed

    def start(self, block: Block) -> subprocess.Popen[str]:
        """Start the process of a block; the caller ends it."""
        shell = ["bash", "-eu", "-o", "pipefail"] if block.language == "bash" else [sys.executable]
        return subprocess.Popen(
            [*shell, "-c", self.addressed(block.text)],
            cwd=self.directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _finish(self, block: Block) -> str:
        with self.start(block) as process:
            try:
                out, err = process.communicate(timeout=BLOCK_SECONDS)
            finally:
                process.kill()
        expected = _HTTP_ERROR if block.shows_error else 0
        assert process.returncode == expected, f"{block}: exit code {process.returncode}\n{block.text}\n{out}\n{err}"
        return out

    def _save(self, text: str) -> None:
        name = _FILE_NAME.match(text)
        if name:
            (self.directory / name[1]).write_text(text)
        if "source" in tomllib.loads(text):
            parse(text, {})


def run_page(page: str, directory: Path, record: Record) -> None:
    """Run a page with a server that has an archive and speaks Kafka's protocol."""
    variables = {"HEADRACE_ARCHIVE_URL": str(directory / "archive")}
    with Server(directory / "headrace-data", "--kafka", "127.0.0.1:0", variables=variables) as server:
        Scratch(directory, server).run_page(page, record)
