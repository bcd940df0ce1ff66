"""A tree of many small and some larger files, and everything there is to know of a tree."""

import hashlib
import os
import random
import stat

PER_FOLDER = 100


def make_tree(root, files, seed=1):
    """Files of 0 bytes to 256 KiB, most of at most 4 KiB; links, holes, xattrs, modes, times."""
    rnd = random.Random(seed)
    block = rnd.randbytes(1 << 18)
    folders = [root]
    os.makedirs(root)
    last = None
    for i in range(files):
        if i % PER_FOLDER == 0:
            # Some lie deeper than others, down to the eighth level.
            above = rnd.choice(folders[-8:])
            above = root if above.count("/") >= root.count("/") + 7 else above
            folders.append(os.path.join(above, f"d{i // PER_FOLDER}"))
            os.mkdir(folders[-1])
        path = os.path.join(folders[-1], f"f{i}" + "ä" * (i % 5) + "x" * (i % 200))
        kind = i % 50
        if kind == 7:
            os.symlink(f"../f{i - 1}", path)
            continue
        if kind == 13 and last is not None:
            os.link(last, path)
            continue
        size = int(2 ** rnd.uniform(0, 12)) if kind % 10 else int(2 ** rnd.uniform(12, 18))
        size = 0 if kind == 1 else size
        start = rnd.randrange(len(block) - size + 1)
        with open(path, "wb") as file:
            file.write(block[start:start + size])
            if kind == 20:
                file.truncate(size + 100_000)
        if kind == 30:
            os.setxattr(path, "user.note", block[start:start + i % 300])
        if os.geteuid() == 0 and kind % 9 == 0:
            os.chown(path, 1000 + kind, 2000 + kind)
        os.chmod(path, rnd.choice((0o644, 0o600, 0o755, 0o440, 0o4755)))
        set_time(path, rnd)
        last = path
    for folder in reversed(folders):
        set_time(folder, rnd)


def set_time(path, rnd):
    now = rnd.randrange(10**9, 17 * 10**8) * 10**9 + rnd.randrange(10**9)
    os.utime(path, ns=(now, now))


def describe(root):
    """By path: type and mode, owner, size, time, contents, target, xattrs, and its other names."""
    found = {}
    names = {}
    for folder, folders, files in os.walk(root):
        for name in folders + files + ["."]:
            path = os.path.join(folder, name)
            if name == "." and folder != root:
                continue
            short = os.path.relpath(path, root)
            at = os.lstat(path)
            row = [at.st_mode, at.st_uid, at.st_gid]
            if not stat.S_ISLNK(at.st_mode):
                row.append(at.st_mtime_ns)
                row.append(sorted((key, os.getxattr(path, key)) for key in os.listxattr(path)))
            else:
                row.append(os.readlink(path))
            if stat.S_ISREG(at.st_mode):
                row += [at.st_size, at.st_nlink, contents(path)]
                names.setdefault(at.st_ino, []).append(short)
            found[short] = row
    for same in names.values():
        for name in same:
            found[name].append(sorted(same))
    return found


def contents(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def differences(one, other):
    """The first ones, as text; empty when there is none."""
    names = sorted(set(one) | set(other))
    return [f"{name}: {one.get(name)} and {other.get(name)}" for name in names
            if one.get(name) != other.get(name)][:5]
