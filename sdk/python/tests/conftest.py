"""Fixtures: clients of a server that the environment names (DSEC_URL, DSEC_API_KEY)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

import dsec


@pytest.fixture
def client() -> Iterator[dsec.Client]:
    with dsec.Client() as c:
        yield c


@pytest_asyncio.fixture
async def async_client() -> AsyncIterator[dsec.AsyncClient]:
    async with dsec.AsyncClient() as c:
        yield c


@pytest.fixture
def session(client: dsec.Client) -> Iterator[dsec.Session]:
    with client.create() as s:
        yield s


@pytest_asyncio.fixture
async def async_session(async_client: dsec.AsyncClient) -> AsyncIterator[dsec.AsyncSession]:
    async with async_client.create() as s:
        yield s


class Daemon:
    """A server of its own, to be killed."""

    def __init__(self, directory: Path) -> None:
        self._binary = os.environ["DSEC_BINARY"]
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"unix://{directory}/dsec.sock"

    def start(self) -> None:
        log = open(self._directory / "log", "ab")
        self._process = subprocess.Popen(
            [
                self._binary,
                "up",
                "--data-dir",
                str(self._directory),
                "--listen",
                "127.0.0.1:0",
                "--no-pool",
            ],
            stderr=log,
        )
        log.close()

    @property
    def key(self) -> str:
        """Its first API key, which it writes at its first start."""
        file = self._directory / "api-key"
        deadline = time.monotonic() + 60
        while not file.exists() or not file.read_text().strip():
            assert time.monotonic() < deadline, (self._directory / "log").read_text()
            time.sleep(0.05)
        return file.read_text().strip()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def down(self) -> None:
        self.kill()
        subprocess.run([self._binary, "down", "--data-dir", str(self._directory)], check=True)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    d = Daemon(tmp_path)
    d.start()
    yield d
    d.down()


@pytest.fixture
def trainer() -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts a Python program that uses the client; it is killed at the end."""
    begun: list[subprocess.Popen[str]] = []

    def start(text: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        begun.append(process)
        return process

    yield start
    for process in begun:
        process.kill()
        process.communicate()
