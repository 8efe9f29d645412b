"""Run one attack and judge how it ended: fine, a clear error, a stack trace, a silently wrong result, or no end."""

import contextlib
import io
import os
import select
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ccp_dml.commands import failures
from ccp_dml.errors import NonFiniteError, UserError

FINE, CLEAR, TRACE, SILENT, HANG = VERDICTS = ("fine", "clear error", "trace", "silent", "hang")
BAD = (TRACE, SILENT, HANG)
SECONDS = 60  # after which a case hangs: the machine may be busy


class SilentlyWrong(AssertionError):
    """A result differs from that of the undisturbed command, and nobody said so."""


class TooSlow(BaseException):
    """A case did not end."""


@contextlib.contextmanager
def time_limit(seconds: int = SECONDS) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def judge(attack: Callable[[], object]) -> tuple[str, str]:
    """Run `attack` in this process; its verdict, and what was said."""
    said = io.StringIO()
    try:
        with time_limit(), contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            attack()
    except (UserError, NonFiniteError) as error:
        text = str(error)
        return (CLEAR, text) if text and "\n" not in text.strip() else (TRACE, f"not one sentence: {text!r}")
    except SilentlyWrong as error:
        return SILENT, str(error)
    except TooSlow:
        return HANG, "no end"
    except Exception:
        return TRACE, traceback.format_exc()
    return FINE, ""


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code, negative for a signal, None for one that had to be stopped; what it said."""

    code: int | None
    said: str


def in_child(work: Callable[[], int | None], seconds: float = 3 * SECONDS) -> Ended:
    """Run `work` in a forked process, and wait until it and all it has started are gone."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.setpgid(0, 0)
        for descriptor in (1, 2):
            os.dup2(writing, descriptor)
        os.close(writing)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        os._exit(exit_code_of(work))
    os.close(writing)
    said, end = b"", time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if select.select([reading], [], [], left)[0]:
            block = os.read(reading, 1 << 16)
            if not block:
                break
            said += block
    else:
        os.killpg(child, signal.SIGKILL)
    os.close(reading)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return Ended(code if left > 0 else None, said.decode(errors="replace"))


def exit_code_of(work: Callable[[], int | None]) -> int:
    """Run `work` as the command line does; a crash report is printed, so that nobody overlooks it."""

    def show(error: BaseException) -> str:
        sys.stderr.write("".join(traceback.format_exception(error)))
        return "the lines above"

    failures.write_crash_report = show  # type: ignore[assignment]
    try:
        try:
            return work() or 0
        except Exception as error:
            sentence, code = failures.explain(error)
            print(sentence, file=sys.stderr)
            return code
        except KeyboardInterrupt:
            return 130
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


class Tally:
    """Counts verdicts by the kind of attack, and keeps the first failures."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {}
        self.failures: list[str] = []

    def add(self, kind: str, verdict: str, said: str = "") -> None:
        self.counts.setdefault(kind, Counter())[verdict] += 1
        if verdict in BAD and len(self.failures) < 20:
            self.failures.append(f"{kind}: {verdict}: {said}")

    def extend(self, kind: str, counts: Mapping[str, int], failures: list[str]) -> None:
        """Add what another tally has counted."""
        self.counts.setdefault(kind, Counter()).update(counts)
        self.failures += failures

    @property
    def is_clean(self) -> bool:
        return not any(count[verdict] for count in self.counts.values() for verdict in BAD)

    def table(self) -> str:
        lines = [f"{'attack':<34}{'cases':>8}" + "".join(f"{name:>13}" for name in VERDICTS)]
        total: Counter[str] = Counter()
        for kind, count in self.counts.items():
            total += count
            lines.append(f"{kind:<34}{count.total():>8}" + "".join(f"{count[name]:>13}" for name in VERDICTS))
        lines.append(f"{'all':<34}{total.total():>8}" + "".join(f"{total[name]:>13}" for name in VERDICTS))
        return "\n".join(lines)
