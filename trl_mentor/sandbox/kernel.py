"""What Linux offers for keeping a process apart and Python 3.11 has no function for."""

from __future__ import annotations

import ctypes
import os

NEW_MOUNTS, NEW_CGROUP, NEW_UTS, NEW_IPC = 0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000
NEW_USER, NEW_PIDS, NEW_NET = 0x1000_0000, 0x2000_0000, 0x4000_0000
"""Namespaces, from linux/sched.h."""
NAMESPACES = NEW_MOUNTS | NEW_CGROUP | NEW_UTS | NEW_IPC | NEW_USER | NEW_PIDS | NEW_NET

READ_ONLY, NO_SUID, NO_DEVICES, NO_EXEC, REMOUNT, BIND, RECURSIVE = 1, 2, 4, 8, 32, 4096, 16384
PRIVATE = 1 << 18
DETACH = 2

DAC_OVERRIDE, DAC_READ_SEARCH, SYS_ADMIN = 1, 2, 21
"""Capabilities to pass by the permissions of files, to do so for reading alone, and to make namespaces."""

_PDEATHSIG, _DUMPABLE, _KEEPCAPS, _SECCOMP, _BOUNDING_DROP = 1, 4, 8, 22, 24
_SUBREAPER, _NO_NEW_PRIVS, _AMBIENT = 36, 38, 47
_CAPABILITY_VERSION = 0x2008_0522
_MOUNT_SETATTR, _RECURSIVE_ATTRIBUTE = 442, 0x8000
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_AT_CWD = -100


class Kernel:
    """System calls by the C library; each raises `OSError` when it is refused."""

    def __init__(self) -> None:
        self._c = ctypes.CDLL(None, use_errno=True)

    def call(self, name: str, *arguments: object) -> int:
        """Call a function of the C library that gives -1 for an error."""
        return self._checked(getattr(self._c, name)(*arguments), name)

    def system_call(self, number: int, *arguments: object) -> int:
        """Make a system call that the C library has no function for."""
        self._c.syscall.restype = ctypes.c_long
        whole = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
        return self._checked(self._c.syscall(ctypes.c_long(number), *whole), f"system call {number}")

    def prctl(self, option: int, *arguments: object) -> int:
        whole = [ctypes.c_ulong(value) if isinstance(value, int) else value for value in arguments]
        whole += [ctypes.c_ulong(0)] * (4 - len(whole))
        return self.call("prctl", ctypes.c_int(option), *whole)

    def unshare(self, flags: int) -> None:
        self.call("unshare", ctypes.c_int(flags))

    def mount(self, source: str, target: str, kind: str, flags: int, options: str = "") -> None:
        text = (source.encode(), target.encode(), kind.encode())
        try:
            self.call("mount", *text, ctypes.c_ulong(flags), options.encode())
        except OSError as error:
            raise OSError(error.errno, f"mount {source} on {target}: {error.strerror}") from None

    def unmount(self, target: str) -> None:
        """Take a mount out of sight, with those under it."""
        self.call("umount2", target.encode(), DETACH)

    def make_read_only(self, target: str, *, alone: bool = False) -> None:
        """Make a mount read-only, with those under it where the kernel can (Linux 5.12), or `alone`."""
        attributes = (ctypes.c_uint64 * 4)(READ_ONLY | NO_SUID, 0, 0, 0)
        arguments = (target.encode(), _RECURSIVE_ATTRIBUTE, ctypes.byref(attributes), ctypes.sizeof(attributes))
        try:
            if not alone:
                self.system_call(_MOUNT_SETATTR, _AT_CWD, *arguments)
                return
        except OSError:
            pass
        kept = os.statvfs(target).f_flag & (NO_SUID | NO_DEVICES | NO_EXEC)
        self.mount("none", target, "", REMOUNT | BIND | READ_ONLY | NO_SUID | kept)

    def change_root(self) -> None:
        """Make the current folder the root and forget the old one."""
        self.system_call(_PIVOT_ROOT[os.uname().machine], b".", b".")
        self.unmount(".")
        os.chdir("/")

    def adopt_orphans(self) -> None:
        """Processes whose parent in this one's tree ends become this one's children."""
        self.prctl(_SUBREAPER, 1)

    def die_with_parent(self) -> None:
        """Get SIGKILL when the parent ends. A change of user takes it back."""
        self.prctl(_PDEATHSIG, 9)

    def hide(self) -> None:
        """Let no other process of the user look into this one."""
        self.prctl(_DUMPABLE, 0)

    def renounce(self) -> None:
        """No program gives this process more rights from now on, as a set-user-id one would."""
        self.prctl(_NO_NEW_PRIVS, 1)

    def filter(self, program: bytes) -> None:
        """Put a seccomp filter, in the classic BPF of struct sock_filter, on this process for good."""
        self.prctl(_SECCOMP, 2, ctypes.byref(_Program(len(program) // 8, program)))

    def become(self, user: int, capability: int | None = None) -> None:
        """Change from root to `user`, for good, with no capability, or one that programs keep as well."""
        self._bound_capabilities(capability)
        self.prctl(_KEEPCAPS, 1)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        self._set_capabilities(capability)

    def drop_capabilities(self) -> None:
        """Stay who this process is, with no capability for good."""
        self._bound_capabilities(None)
        self._set_capabilities(None)

    def _bound_capabilities(self, capability: int | None) -> None:
        for number in range(64):
            if number != capability:
                try:
                    self.prctl(_BOUNDING_DROP, number)
                except OSError:
                    break

    def _set_capabilities(self, capability: int | None) -> None:
        mask = 0 if capability is None else 1 << capability
        header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
        sets = (ctypes.c_uint32 * 6)(mask, mask, mask, 0, 0, 0)
        self.call("capset", ctypes.byref(header), ctypes.byref(sets))
        if capability is not None:
            self.prctl(_AMBIENT, 2, capability)

    def has(self, capability: int) -> bool:
        """Whether this process may use a capability."""
        header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
        sets = (ctypes.c_uint32 * 6)()
        self.call("capget", ctypes.byref(header), ctypes.byref(sets))
        return bool(sets[0] >> capability & 1)

    def _checked(self, result: int, name: str) -> int:
        if result == -1:
            number = ctypes.get_errno()
            raise OSError(number, f"{name}: {os.strerror(number)}")
        return result


class _Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("count", ctypes.c_ushort), ("code", ctypes.c_char_p))
