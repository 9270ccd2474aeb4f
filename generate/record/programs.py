"""Programs that the recorder starts: on the recorded device, and none left behind."""

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from generate.record import without_paths

ROOT = Path(__file__).parents[2]
_running: set[subprocess.Popen] = set()


class Unreadable(Exception):
    """A program's words hold no result; says what they are instead."""


def visible(context) -> str:
    """The recorded device alone, in the numbering this process sees."""
    index = context.device.index
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return seen.split(",")[index] if seen else str(index)


@contextlib.contextmanager
def started(command: list[str], context, **variables) -> Iterator[subprocess.Popen]:
    """A program; what then is left of it, and of all that it started, is killed.

    variables: of its environment, besides this process's own.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "CUDA_VISIBLE_DEVICES": visible(context),
        **variables,
    }
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        env=environment,
        start_new_session=True,
    ) as process:
        _running.add(process)
        try:
            yield process
        finally:
            kill(process)
            _running.discard(process)


def kill(process: subprocess.Popen) -> None:
    """End a program and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def run(
    command: list[str], context, timeout_s: float, may_fail: bool = False, **variables
) -> str:
    """What a program says. Unreadable if it fails, or takes too long."""
    try:
        with started(command, context, **variables) as process:
            said, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise Unreadable(f"it took longer than {timeout_s} s") from None
    except OSError as error:
        raise Unreadable(f"it does not start: {error.strerror}") from None
    if process.returncode and not may_fail:
        raise Unreadable(last_line(said))
    return said


def last_line(said: str) -> str:
    """The last that a program said, without paths."""
    return without_paths((said.strip().splitlines() or ["nothing"])[-1])


@contextlib.contextmanager
def waiting(workers: int | None = None) -> Iterator[ThreadPoolExecutor]:
    """Threads that wait for programs, which end with them where an error ends this."""
    with ThreadPoolExecutor(workers) as threads:
        try:
            yield threads
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            for process in tuple(_running):
                kill(process)
            raise


def find_sanitizer() -> str | None:
    """compute-sanitizer's path: on the PATH, of a CUDA toolkit, or of a wheel."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    if home := os.environ.get("CUDA_HOME"):
        folders.append(str(Path(home, "bin")))
    folders.append("/usr/local/cuda/bin")
    wheels = importlib.util.find_spec("nvidia")
    for place in (wheels and wheels.submodule_search_locations) or ():
        folders += sorted(map(str, Path(place).glob("*/bin")))
    return shutil.which("compute-sanitizer", path=os.pathsep.join(folders))
