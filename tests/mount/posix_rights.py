"""chmod, chown, access: who may do what."""

import errno
import os

from posix_rules import MEMBERS, OTHER, USER, scenario


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write(path):
    os.close(os.open(path, os.O_WRONLY))


def create(path):
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))


@scenario
def chmod_sets_all_bits(f):
    f.make("file")
    f.mkdir("d")
    for mode in (0o000, 0o777, 0o640, 0o4755, 0o2755, 0o1777, 0o7777):
        f.works(os.chmod, f("file"), mode)
        f.same(f.mode("file"), mode, "mode of a file")
        f.works(os.chmod, f("d"), mode)
        f.same(f.mode("d"), mode, "mode of a directory")


@scenario
def chmod_is_the_owners(f):
    f.make("file")
    os.chown(f("file"), USER, USER)
    f.works(f.as_user, os.chmod, f("file"), 0o600)
    f.fails(errno.EPERM, f.as_user, os.chmod, f("file"), 0o777, uid=OTHER, gid=USER)
    f.same(f.mode("file"), 0o600, "mode")
    f.fails(errno.ENOENT, os.chmod, f("none"), 0o600)


@scenario
def chmod_through_a_descriptor(f):
    fd = f.open("file", os.O_RDONLY | os.O_CREAT)
    f.works(os.fchmod, fd, 0o604)
    f.same(f.mode("file"), 0o604, "mode")
    os.unlink(f("file"))
    f.works(os.fchmod, fd, 0o600)
    f.same(os.fstat(fd).st_mode & 0o7777, 0o600, "mode of an unlinked file")


@scenario
def chmod_drops_setgid_of_a_foreign_group(f):
    f.make("file")
    os.chown(f("file"), USER, MEMBERS)
    f.works(f.as_user, os.chmod, f("file"), 0o2755)
    f.same(f.mode("file"), 0o755, "mode")
    f.works(lambda: f.as_user(os.chmod, f("file"), 0o2755, groups=(MEMBERS,)))
    f.same(f.mode("file"), 0o2755, "mode, as a member")


@scenario
def chown_by_root_sets_both(f):
    f.make("file")
    f.works(os.chown, f("file"), USER, MEMBERS)
    f.same((f.stat("file").st_uid, f.stat("file").st_gid), (USER, MEMBERS), "owner")
    f.works(os.chown, f("file"), -1, 0)
    f.same((f.stat("file").st_uid, f.stat("file").st_gid), (USER, 0), "group only")
    f.works(os.chown, f("file"), 0, -1)
    f.same((f.stat("file").st_uid, f.stat("file").st_gid), (0, 0), "user only")


@scenario
def chown_by_others_is_refused(f):
    f.make("file")
    os.chown(f("file"), USER, USER)
    f.fails(errno.EPERM, f.as_user, os.chown, f("file"), OTHER, -1)
    f.fails(errno.EPERM, f.as_user, os.chown, f("file"), -1, MEMBERS)
    f.works(lambda: f.as_user(os.chown, f("file"), -1, MEMBERS, groups=(MEMBERS,)))
    f.same(f.stat("file").st_gid, MEMBERS, "group, as a member")
    f.fails(errno.EPERM, f.as_user, os.chown, f("file"), -1, USER, uid=OTHER)


@scenario
def chown_of_a_symlink_itself(f):
    f.make("file")
    os.symlink("file", f("link"))
    f.works(os.lchown, f("link"), USER, USER)
    f.same(f.stat("link").st_uid, USER, "owner of the link")
    f.same(f.stat("file").st_uid, 0, "owner of the file")
    os.chown(f("link"), OTHER, OTHER)
    f.same(f.stat("file").st_uid, OTHER, "through the link")


@scenario
def chown_clears_set_id_bits(f):
    f.make("file")
    os.chown(f("file"), USER, MEMBERS)
    os.chmod(f("file"), 0o6755)
    f.works(lambda: f.as_user(os.chown, f("file"), -1, USER, groups=(MEMBERS,)))
    f.same(f.mode("file"), 0o755, "mode")


@scenario
def a_write_clears_set_id_bits(f):
    f.make("file", b"data", 0o777)
    os.chown(f("file"), 0, 0)
    os.chmod(f("file"), 0o6777)

    def change(path):
        fd = os.open(path, os.O_WRONLY)
        os.write(fd, b"x")
        os.close(fd)

    f.as_user(change, f("file"))
    f.same(f.mode("file"), 0o777, "mode")


@scenario
def truncation_clears_set_id_bits(f):
    path = f.make("file", b"data" * 5000, 0o777)

    def cut_open_file(path):
        fd = os.open(path, os.O_RDWR)
        os.ftruncate(fd, 100)
        os.close(fd)

    def cut_by_opening(path):
        os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))

    for call, arguments in ((os.truncate, (1000,)), (cut_open_file, ()), (cut_by_opening, ())):
        os.chmod(path, 0o6777)
        f.works(f.as_user, call, path, *arguments)
        f.same(f.mode("file"), 0o777, f"mode after {call.__name__}")


@scenario
def reading_needs_the_right(f):
    path = f.make("file", b"data")
    os.chown(path, USER, MEMBERS)
    cases = ((0o400, USER, (), True), (0o040, USER, (MEMBERS,), False),
             (0o040, OTHER, (MEMBERS,), True), (0o004, OTHER, (MEMBERS,), False),
             (0o004, OTHER, (), True), (0o000, USER, (), False), (0o440, OTHER, (), False))
    for mode, uid, groups, may in cases:
        os.chmod(path, mode)

        def call():
            return f.as_user(read, path, uid=uid, gid=uid, groups=groups)

        if may:
            f.same(f.works(call), b"data", f"{mode:o} by {uid} in {groups}")
        else:
            f.fails(errno.EACCES, call)
    f.same(read(path), b"data", "root may always")


@scenario
def writing_needs_the_right(f):
    path = f.make("file")
    os.chown(path, USER, MEMBERS)
    for mode, uid, may in ((0o200, USER, True), (0o400, USER, False), (0o020, OTHER, False),
                           (0o002, OTHER, True), (0o555, USER, False)):
        os.chmod(path, mode)
        if may:
            f.works(f.as_user, write, path, uid=uid, gid=uid)
        else:
            f.fails(errno.EACCES, f.as_user, write, path, uid=uid, gid=uid)
    f.fails(errno.EACCES, f.as_user, os.truncate, path, 0)


@scenario
def executing_needs_the_right(f):
    with open("/bin/true", "rb") as file:
        path = f.make("program", file.read(), 0o711)

    def run():
        child = os.fork()
        if child == 0:
            try:
                os.execv(path, [path])
            except OSError as error:
                os._exit(error.errno)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    f.same(f.as_user(run), 0, "a program that cannot be read")
    os.chmod(path, 0o644)
    f.same(f.as_user(run), errno.EACCES, "errno")
    f.same(run(), errno.EACCES, "errno of root, without any x")


@scenario
def directories_are_searched_with_x_and_listed_with_r(f):
    f.mkdir("d")
    path = f.make("d/file", b"data")
    os.chown(f("d"), USER, USER)
    os.chmod(f("d"), 0o100)
    f.same(f.as_user(read, path), b"data", "x alone")
    f.fails(errno.EACCES, f.as_user, os.listdir, f("d"))
    os.chmod(f("d"), 0o400)
    f.same(f.as_user(os.listdir, f("d")), ["file"], "r alone")
    f.fails(errno.EACCES, f.as_user, read, path)
    f.fails(errno.EACCES, f.as_user, os.stat, path)
    f.fails(errno.EACCES, f.as_user, os.stat, f("d/none"))


@scenario
def changing_a_directory_needs_w_and_x(f):
    f.mkdir("d")
    f.make("d/file")
    f.mkdir("d/sub")
    os.chown(f("d"), USER, USER)
    for mode in (0o500, 0o600):
        os.chmod(f("d"), mode)
        for call, arguments in ((create, (f("d/new"),)), (os.mkdir, (f("d/new"),)),
                                (os.unlink, (f("d/file"),)), (os.rmdir, (f("d/sub"),)),
                                (os.symlink, ("x", f("d/new"))),
                                (os.rename, (f("d/file"), f("d/new"))),
                                (os.mkfifo, (f("d/new"),))):
            f.fails(errno.EACCES, f.as_user, call, *arguments)
    os.chmod(f("d"), 0o700)
    f.works(f.as_user, create, f("d/new"))
    f.works(f.as_user, os.unlink, f("d/file"))
    f.same(f.stat("d/new").st_uid, USER, "owner of what was made")


@scenario
def links_need_the_right_to_the_directory(f):
    f.make("file")
    f.mkdir("d")
    f.fails(errno.EACCES, f.as_user, os.symlink, "x", f("d/link"))
    os.chmod(f("d"), 0o777)
    f.works(f.as_user, os.symlink, "x", f("d/link"))
    f.same(f.stat("d/link").st_uid, USER, "owner")


@scenario
def the_sticky_bit_keeps_files_of_others(f):
    f.mkdir("d", 0o1777)
    for name, uid in (("mine", USER), ("other", OTHER), ("target", OTHER)):
        f.make("d/" + name)
        os.chown(f("d/" + name), uid, uid)
    f.fails(errno.EPERM, f.as_user, os.unlink, f("d/other"))
    f.fails(errno.EPERM, f.as_user, os.rename, f("d/other"), f("d/new"))
    f.fails(errno.EPERM, f.as_user, os.rename, f("d/mine"), f("d/target"))
    f.works(f.as_user, os.rename, f("d/mine"), f("d/own"))
    f.works(f.as_user, os.unlink, f("d/own"))
    os.chown(f("d"), USER, USER)
    f.works(f.as_user, os.unlink, f("d/other"))


@scenario
def a_setgid_directory_gives_its_group(f):
    f.mkdir("d")
    os.chown(f("d"), USER, MEMBERS)
    os.chmod(f("d"), 0o2775)
    f.works(f.as_user, create, f("d/file"))
    f.works(f.as_user, os.mkdir, f("d/sub"))
    f.same(f.stat("d/file").st_gid, MEMBERS, "group of a file")
    f.same(f.stat("d/sub").st_gid, MEMBERS, "group of a directory")
    f.true(f.mode("d/sub") & 0o2000, "the bit is passed on to directories")
    f.same(f.mode("d/file") & 0o2000, 0, "not to files")


@scenario
def access_asks_for_the_real_user(f):
    path = f.make("file")
    os.chown(path, USER, USER)
    os.chmod(path, 0o640)
    f.true(f.as_user(os.access, path, os.R_OK | os.W_OK), "the owner")
    f.true(not f.as_user(os.access, path, os.X_OK), "no x")
    f.true(not f.as_user(os.access, path, os.R_OK, uid=OTHER, gid=OTHER), "others")
    f.true(f.as_user(os.access, path, os.F_OK, uid=OTHER, gid=OTHER), "it is there")
    f.true(os.access(path, os.R_OK | os.W_OK), "root")
    f.true(not os.access(path, os.X_OK), "root, without any x")
    f.true(not os.access(f("none"), os.F_OK), "it is not there")


@scenario
def moving_a_directory_of_others_needs_its_w(f):
    """Its .. changes with it."""
    f.mkdir("a", 0o777)
    f.mkdir("b", 0o777)
    f.mkdir("a/d", 0o755)
    f.fails(errno.EACCES, f.as_user, os.rename, f("a/d"), f("b/d"))
    f.works(f.as_user, os.rename, f("a/d"), f("a/e"))
    os.chmod(f("a/e"), 0o777)
    f.works(f.as_user, os.rename, f("a/e"), f("b/d"))
