"""Run one attack and judge how it ended: fine, a clear error, a stack trace, a silently wrong result, or no end."""

import contextlib
import io
import os
import signal
import traceback
from collections import Counter
from collections.abc import Callable, Iterator

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


def in_child(work: Callable[[], object]) -> int:
    """Run `work` in a forked process; its exit code, 137 where it killed itself, 3 for an exception."""
    child = os.fork()
    if child == 0:
        code = 0
        try:
            with (
                open(os.devnull, "w") as nowhere,
                contextlib.redirect_stderr(nowhere),
                contextlib.redirect_stdout(nowhere),
            ):
                work()
        except UserError:
            code = 2
        except BaseException:
            code = 3
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Tally:
    """Counts verdicts by the kind of attack, and keeps the first failures."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {}
        self.failures: list[str] = []

    def add(self, kind: str, verdict: str, said: str = "") -> None:
        self.counts.setdefault(kind, Counter())[verdict] += 1
        if verdict in BAD and len(self.failures) < 20:
            self.failures.append(f"{kind}: {verdict}: {said}")

    @property
    def is_clean(self) -> bool:
        return not any(count[verdict] for count in self.counts.values() for verdict in BAD)

    def table(self) -> str:
        lines = [f"{'attack':<28}{'cases':>8}" + "".join(f"{name:>13}" for name in VERDICTS)]
        total: Counter[str] = Counter()
        for kind, count in self.counts.items():
            total += count
            lines.append(f"{kind:<28}{count.total():>8}" + "".join(f"{count[name]:>13}" for name in VERDICTS))
        lines.append(f"{'all':<28}{total.total():>8}" + "".join(f"{total[name]:>13}" for name in VERDICTS))
        return "\n".join(lines)
