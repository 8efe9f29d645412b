import io
import json
import os
import signal
import sys

import pytest
from rich.table import Table

from ccp_dml.commands.console import out, print_any_name, print_json, take_termination_as_interrupt


def test_a_kill_ends_a_command_as_ctrl_c_does():
    before = signal.getsignal(signal.SIGTERM)
    try:
        take_termination_as_interrupt()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_closed_terminal_ends_a_command_too_unless_it_was_told_to_stay():
    before = signal.getsignal(signal.SIGHUP)
    try:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup, under which tests may run, ignores it
        take_termination_as_interrupt()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGHUP)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        take_termination_as_interrupt()
        os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("name", ["exp[lr=1]", "a[/b]", "[bold]x[/bold]", ":smile:", "[link=x]"])
def test_names_are_printed_as_they_are(name, capsys):
    out.print(f"Report: {name}", soft_wrap=True)
    table = Table(title=name)
    table.add_column(name)
    table.add_row(name)
    out.print(table)
    assert capsys.readouterr().out.count(name) == 4


def test_names_that_are_no_text_are_printed_and_read_back(monkeypatch):
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding="utf-8"))
    print_any_name()
    out.print("br\udce4.jpg")
    print_json(["br\udce4.jpg"])
    sys.stdout.flush()
    first, rest = printed.getvalue().split(b"\n", 1)
    assert first == b"br\\udce4.jpg"
    assert json.loads(rest.decode("utf-8")) == ["br\udce4.jpg"]
