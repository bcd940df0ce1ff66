"""What the POSIX scenarios share: each gets a folder of its own and says what has to be true.

A scenario is a function of posix_*.py with the decorator @scenario; it gets a Folder. Its name is
the call and the rule. posix_run.py runs them on any directory, so a rule that is wrong fails on
tmpfs, too.
"""

import ctypes
import errno
import os
import pickle
import shutil
import sys
import traceback

SCENARIOS = []
LIBC = ctypes.CDLL(None, use_errno=True)
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_ZERO_RANGE = 1, 2, 16
AT_FDCWD = -100
USER, OTHER = 4242, 4343  # of nobody on this machine
MEMBERS = 5252  # a group


def scenario(function):
    SCENARIOS.append(function)
    return function


def checked(result):
    """What a function of the C library gives, as Python's own calls do it."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def renameat2(old, new, flags):
    return checked(LIBC.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags))


def fallocate(fd, mode, offset, size):
    return checked(LIBC.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(size)))


def link_descriptor(fd, path):
    """A new name of an open file: linkat() with AT_SYMLINK_FOLLOW."""
    source = os.fsencode(f"/proc/self/fd/{fd}")
    return checked(LIBC.linkat(AT_FDCWD, source, AT_FDCWD, os.fsencode(path), 0x400))


class Failed(Exception):
    """A rule does not hold."""


class Folder:
    """A scenario's own directory, and what it says about it."""

    def __init__(self, path):
        self.path = path
        self.assertions = 0
        self.opened = []

    def __call__(self, *names):
        return os.path.join(self.path, *names)

    # ---- what has to be true ----

    def true(self, value, what):
        self.assertions += 1
        if not value:
            raise Failed(what)

    def same(self, got, wanted, what=""):
        self.true(got == wanted, f"{what}: {got!r} is not {wanted!r}")

    def fails(self, number, call, *arguments, **named):
        """The call fails with this errno."""
        try:
            result = call(*arguments, **named)
        except OSError as error:
            self.same(errno.errorcode.get(error.errno), errno.errorcode[number],
                      f"errno of {getattr(call, '__name__', call)}{arguments}")
            return
        self.true(False, f"{getattr(call, '__name__', call)}{arguments} gave {result!r}, "
                         f"not {errno.errorcode[number]}")

    def works(self, call, *arguments, **named):
        try:
            result = call(*arguments, **named)
        except OSError as error:
            self.true(False, f"{getattr(call, '__name__', call)}{arguments}: {error}")
        self.assertions += 1
        return result

    def missing(self, name):
        self.fails(errno.ENOENT, os.lstat, self(name))

    def content(self, name, wanted):
        with open(self(name), "rb") as file:
            self.same(file.read(), wanted, f"content of {name}")

    def names(self, wanted, folder="."):
        self.same(sorted(os.listdir(self(folder))), sorted(wanted), f"names in {folder}")

    # ---- what a scenario needs ----

    def make(self, name, data=b"", mode=0o644):
        fd = os.open(self(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        try:
            os.write(fd, data)
            os.fchmod(fd, mode)
        finally:
            os.close(fd)
        return self(name)

    def mkdir(self, name, mode=0o755):
        os.mkdir(self(name))
        os.chmod(self(name), mode)
        return self(name)

    def open(self, name, flags, mode=0o644):
        """Closed at the end of the scenario."""
        fd = os.open(self(name), flags, mode)
        self.opened.append(fd)
        return fd

    def close(self, fd):
        self.opened.remove(fd)
        os.close(fd)

    def stat(self, name):
        return os.lstat(self(name))

    def mode(self, name):
        return self.stat(name).st_mode & 0o7777

    def as_user(self, call, *arguments, uid=USER, gid=USER, groups=()):
        """Runs the call as somebody else, in another process; gives or raises what it does."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(reader)
                os.setgroups(list(groups))
                os.setresgid(gid, gid, gid)
                os.setresuid(uid, uid, uid)
                os.umask(0o022)
                answer = (True, call(*arguments))
            except OSError as error:
                answer = (False, error.errno)
            os.write(writer, pickle.dumps(answer))
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            said = file.read()
        os.waitpid(child, 0)
        good, value = pickle.loads(said)
        if not good:
            raise OSError(value, os.strerror(value))
        return value

    def end(self):
        for fd in self.opened:
            os.close(fd)


def run_one(function, root):
    """The number of assertions, and why it failed or None."""
    path = os.path.join(root, function.__name__)
    os.mkdir(path)
    os.chmod(path, 0o755)
    folder = Folder(path)
    old_mask = os.umask(0o022)
    try:
        function(folder)
        why = None
    except Failed as failed:
        why = str(failed)
    except OSError as error:
        where = traceback.extract_tb(sys.exc_info()[2])
        ours = [frame for frame in where if frame.name == function.__name__][-1]
        why = f"line {ours.lineno}: {error}"
    finally:
        os.umask(old_mask)
        folder.end()
    shutil.rmtree(path, ignore_errors=True)
    return folder.assertions, why
