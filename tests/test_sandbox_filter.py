"""The filter of system calls, run step by step as the kernel would, for both kinds of machine."""

from __future__ import annotations

import errno
import os
import struct
from types import SimpleNamespace

import pytest

from trl_mentor.sandbox.seccomp import build_filter, supported

MACHINES = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
ALLOWED, KILLED = 0x7FFF_0000, 0x8000_0000
REFUSED, UNKNOWN = 0x0005_0000 | errno.EPERM, 0x0005_0000 | errno.ENOSYS
FIRST = 1000

CALLS = [
    ("write", (1, 64), (1,), ALLOWED),
    ("execve", (59, 221), (), ALLOWED),
    ("socket", (41, 198), (1,), REFUSED),
    ("socketpair of this machine", (53, 199), (1,), ALLOWED),
    ("socketpair of the internet", (53, 199), (2,), REFUSED),
    ("fork", (56, 220), (0x0120_0011,), ALLOWED),
    ("thread", (56, 220), (0x003D_0F00,), ALLOWED),
    ("clone into a namespace of users", (56, 220), (0x1000_0011,), REFUSED),
    ("clone into a network", (56, 220), (0x4000_0011,), REFUSED),
    ("clone3", (435, 435), (), UNKNOWN),
    ("unshare", (272, 97), (), REFUSED),
    ("ptrace", (101, 117), (), REFUSED),
    ("bpf", (321, 280), (), REFUSED),
    ("kill itself", (62, 129), (FIRST, 9), ALLOWED),
    ("kill a child", (62, 129), (FIRST + 7, 9), ALLOWED),
    ("kill an older process", (62, 129), (FIRST - 1, 9), REFUSED),
    ("kill its group", (62, 129), (0, 9), ALLOWED),
    ("kill a group of its own", (62, 129), (-FIRST - 7, 9), ALLOWED),
    ("kill an older group", (62, 129), (1 - FIRST, 9), REFUSED),
    ("kill everything", (62, 129), (-1, 9), REFUSED),
    ("raise a signal", (234, 131), (FIRST, FIRST, 6), ALLOWED),
    ("signal of another thread", (234, 131), (FIRST - 1, FIRST - 1, 6), REFUSED),
    ("name of a thread", (157, 167), (15,), ALLOWED),
    ("outlive the parent", (157, 167), (1, 0), REFUSED),
    ("ask for a terminal", (16, 29), (0, 0x5401), ALLOWED),
    ("type into a terminal", (16, 29), (0, 0x5412), REFUSED),
    ("signals from a pipe to others", (72, 25), (3, 8, 1), REFUSED),
    ("flags of a file", (72, 25), (3, 3), ALLOWED),
    ("own limits", (302, 261), (0, 7), ALLOWED),
    ("limits of others", (302, 261), (FIRST - 1, 7), REFUSED),
]


def verdict(program: bytes, machine: int, number: int, arguments: tuple[int, ...]) -> int:
    """What a filter in classic BPF returns for a call."""
    padded = [argument & 2**64 - 1 for argument in (*arguments, *[0] * (6 - len(arguments)))]
    data = struct.pack("=IIQ6Q", number, machine, 0, *padded)
    steps = list(struct.iter_unpack("=HBBI", program))
    at = value = 0
    while True:
        code, yes, no, operand = steps[at]
        at += 1
        if code == 0x20:
            (value,) = struct.unpack_from("=I", data, operand)
        elif code == 0x06:
            return operand
        else:
            holds = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}[code]
            at += yes if holds else no


@pytest.fixture(params=MACHINES)
def machine(request, monkeypatch):
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(sysname="Linux", machine=request.param))
    return request.param


@pytest.mark.parametrize(("numbers", "arguments", "expected"), [call[1:] for call in CALLS], ids=[c[0] for c in CALLS])
def test_a_call_is_allowed_or_refused(machine, numbers, arguments, expected):
    program = build_filter(namespaces=False, own_user=False, first_process=FIRST)
    number = numbers[list(MACHINES).index(machine)]
    assert verdict(program, MACHINES[machine], number, arguments) == expected


def test_calls_of_another_machine_end_the_program(machine):
    (other,) = set(MACHINES) - {machine}
    assert verdict(build_filter(namespaces=True), MACHINES[other], 1, ()) == KILLED


def test_programs_in_namespaces_may_use_sockets_and_signals(machine):
    program, column = build_filter(namespaces=True), list(MACHINES).index(machine)
    for numbers, arguments in (((41, 198), (2,)), ((62, 129), (-1, 9)), ((141, 140), (0, 0, 19))):
        assert verdict(program, MACHINES[machine], numbers[column], arguments) == ALLOWED


def test_other_machines_have_no_filter(monkeypatch):
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(sysname="Linux", machine="riscv64"))
    assert not supported()
