"""The filter of system calls: what no honest program needs, and what would lead out of the sandbox.

A filter is a program in classic BPF that the kernel runs before each system call (seccomp(2)). Refused calls fail with
EPERM. Numbers are those of arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h.
"""

from __future__ import annotations

import errno
import os
import struct
from dataclasses import dataclass, field

from trl_mentor.sandbox.kernel import NAMESPACES

_AUDIT = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
_COLUMN = {"x86_64": 0, "aarch64": 1}
_OTHER_ABI = 0x4000_0000
"""Numbers of x32, another set of calls for programs of x86-64."""
_LOAD, _EQUAL, _AT_LEAST, _ANY_OF, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _REFUSE, _UNKNOWN = 0x7FFF_0000, 0x8000_0000, 0x0005_0000 | errno.EPERM, 0x0005_0000 | errno.ENOSYS
_NUMBER_AT, _MACHINE_AT, _ARGUMENTS_AT = 0, 4, 16
_UNIX = 1
_SET_OWNER, _SET_SIGNAL, _SET_OWNER_EX, _IO_SET_OWNER, _IO_SET_GROUP = 8, 10, 15, 0x8901, 0x8902
_TYPE_INTO_TERMINAL = 0x5412
_SET_DEATH_SIGNAL = 1

_ALWAYS = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440), "move_pages": (279, 239), "migrate_pages": (256, 238),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "add_key": (248, 217),
    "request_key": (249, 218), "keyctl": (250, 219), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225),
    "acct": (163, 89), "quotactl": (179, 60), "syslog": (103, 116), "vhangup": (153, 58), "personality": (135, 92),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
}  # fmt: skip
"""Other processes' memory, mounts, namespaces, and the kernel itself."""
_PRIORITIES = {
    "setpriority": (141, 140), "sched_setparam": (142, 118), "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274), "ioprio_set": (251, 30),
}  # fmt: skip
"""Of any process of the user."""
_WITHOUT_NAMESPACES = {
    "socket": (41, 198), "shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
}  # fmt: skip
"""The network, sockets of the machine, and objects that outlive their process."""
_TIMES = {"utimensat": (280, 88), "utime": (132, -1), "utimes": (235, -1), "futimesat": (261, -1)}
_SIGNALS = {"kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131)}
_QUEUED = {"rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424)}


def supported() -> bool:
    """Whether the filter is written for this machine."""
    return os.uname().sysname == "Linux" and os.uname().machine in _AUDIT


def build_filter(
    *, namespaces: bool, own_user: bool = True, keep_times: bool = False, first_process: int | None = None
) -> bytes:
    """The filter for a program that runs in namespaces, or without.

    `own_user`: no other process that it could reach has its user. `keep_times`: it may not set time stamps, which
    no other rule stops where it has a capability over files.
    `first_process`: it may signal only this one and younger ones.
    """
    writer = _Writer(os.uname().machine)
    writer.begin()
    refused = _ALWAYS | ({} if namespaces else _WITHOUT_NAMESPACES) | (_TIMES if keep_times else {})
    refused |= {} if own_user else _PRIORITIES
    for numbers in refused.values():
        writer.refuse(numbers)
    writer.refuse((435, 435), _UNKNOWN)  # clone3, whose flags no filter can read: the C library goes back to clone
    writer.refuse_if((56, 220), 0, (_ANY_OF, NAMESPACES & ~0xFF))
    writer.refuse_if((157, 167), 0, (_EQUAL, _SET_DEATH_SIGNAL))
    writer.refuse_if((16, 29), 1, (_EQUAL, _TYPE_INTO_TERMINAL), (_EQUAL, _IO_SET_OWNER), (_EQUAL, _IO_SET_GROUP))
    writer.refuse_if((72, 25), 1, (_EQUAL, _SET_OWNER), (_EQUAL, _SET_OWNER_EX), (_EQUAL, _SET_SIGNAL))
    writer.refuse_if((302, 261), 0, (_AT_LEAST, 1))  # prlimit64 of another process
    writer.refuse_if((203, 122), 0, (_AT_LEAST, 1))  # sched_setaffinity of another process
    if not namespaces:
        writer.allow_if((53, 199), 0, _UNIX)  # socketpair
    if first_process is not None:
        for numbers in _SIGNALS.values():
            writer.signal_rule(numbers, first_process)
        for numbers in _QUEUED.values():
            writer.refuse(numbers)
    return writer.end()


@dataclass(slots=True)
class _Writer:
    """Instructions of struct sock_filter, each 8 bytes; jumps count the instructions that they skip."""

    machine: str
    code: list[bytes] = field(default_factory=list)

    def begin(self) -> None:
        self._add(_LOAD, _MACHINE_AT)
        self._add(_EQUAL, _AUDIT[self.machine], 1, 0)
        self._add(_RETURN, _KILL)
        self._add(_LOAD, _NUMBER_AT)
        if self.machine == "x86_64":
            self._add(_AT_LEAST, _OTHER_ABI, 0, 1)
            self._add(_RETURN, _REFUSE)

    def end(self) -> bytes:
        self._add(_RETURN, _ALLOW)
        return b"".join(self.code)

    def refuse(self, numbers: tuple[int, int], result: int = _REFUSE) -> None:
        number = numbers[_COLUMN[self.machine]]
        if number >= 0:
            self._add(_EQUAL, number, 0, 1)
            self._add(_RETURN, result)

    def refuse_if(self, numbers: tuple[int, int], argument: int, *tests: tuple[int, int]) -> None:
        """Refuse a call where one of the tests holds for the lower half of an argument."""
        self._block(numbers, argument, len(tests) + 2)
        for index, (test, value) in enumerate(tests):
            self._add(test, value, len(tests) - index, 0)
        self._add(_RETURN, _ALLOW)
        self._add(_RETURN, _REFUSE)

    def allow_if(self, numbers: tuple[int, int], argument: int, value: int) -> None:
        self._block(numbers, argument, 3)
        self._add(_EQUAL, value, 1, 0)
        self._add(_RETURN, _REFUSE)
        self._add(_RETURN, _ALLOW)

    def signal_rule(self, numbers: tuple[int, int], first: int) -> None:
        """Let a signal go to the own group (0), to processes from `first` on, and groups (minus a number) too."""
        self._block(numbers, 0, 6)
        self._add(_EQUAL, 0, 4, 0)
        self._add(_AT_LEAST, 2**32 - first + 1, 2, 0)
        self._add(_AT_LEAST, 2**31, 2, 0)
        self._add(_AT_LEAST, first, 1, 0)
        self._add(_RETURN, _REFUSE)
        self._add(_RETURN, _ALLOW)

    def _block(self, numbers: tuple[int, int], argument: int, length: int) -> None:
        self._add(_EQUAL, numbers[_COLUMN[self.machine]], 0, length + 1)
        self._add(_LOAD, _ARGUMENTS_AT + 8 * argument)

    def _add(self, code: int, value: int, yes: int = 0, no: int = 0) -> None:
        self.code.append(struct.pack("=HBBI", code, yes, no, value))
