"""Makes stand-ins for the NVIDIA libraries that a torch wheel from PyPI is linked to, so that it can be imported where
they are absent. Every function returns 100, "no device". For tests only.

    python3 tests/python/nvidia_stand_ins.py SITE_PACKAGES/torch/lib FOLDER    # then LD_LIBRARY_PATH=FOLDER
"""
import collections
import os
import re
import subprocess
import sys

SYSTEM = re.compile(r"^(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|ld-linux[^.]*|libgomp|libutil|libz)\.")
OURS = re.compile(r"(_*cu|nccl|nv|CU|_*nv)")  # functions without a version that such libraries have


def lines_of(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.splitlines()


def main(libraries, folder):
    present = set(os.listdir(libraries))
    needed, defined, wanted, owner = set(), set(), collections.defaultdict(set), {}
    for name in sorted(present):
        path = os.path.join(libraries, name)
        if ".so" not in name or os.path.isdir(path):
            continue
        needed.update(m for line in lines_of("readelf", "-dW", path) for m in re.findall(r"NEEDED.*\[(.*)\]", line))
        library = None
        for line in lines_of("readelf", "-VW", path):
            file, version = re.search(r"File: (\S+)", line), re.search(r"Name: (\S+).*Flags", line)
            library = file.group(1) if file else library
            if version and library:
                owner[version.group(1)] = library
        for line in lines_of("nm", "-D", path):
            parts = line.split()
            if len(parts) == 2 and parts[0] == "U":
                function, _, version = parts[1].partition("@")
                wanted[version.lstrip("@")].add(function)
            elif len(parts) == 3 and parts[1] not in "wv":
                defined.add(parts[2].partition("@")[0])
    absent = sorted(n for n in needed if n not in present and not SYSTEM.match(n))
    unversioned = sorted(f for f in wanted.get("", ()) if f not in defined and OURS.match(f))
    os.makedirs(folder, exist_ok=True)
    running = []
    for i, library in enumerate(absent):
        versions = {v: sorted(fs) for v, fs in wanted.items() if v and owner.get(v) == library}
        functions = sorted({f for fs in versions.values() for f in fs} | (set(unversioned) if i == 0 else set()))
        base = os.path.join(folder, library)
        with open(base + ".c", "w") as file:
            file.writelines("int {}(void) {{ return 100; }}\n".format(f) for f in functions)
        command = ["cc", "-w", "-fno-builtin", "-shared", "-fPIC", "-o", base, base + ".c", "-Wl,-soname," + library]
        if versions:
            with open(base + ".map", "w") as file:
                file.writelines("{} {{ global: {}; }};\n".format(v, "; ".join(fs)) for v, fs in versions.items())
            command.append("-Wl,--version-script=" + base + ".map")
        running.append(subprocess.Popen(command))
    if any([process.wait() for process in running]):
        sys.exit("nvidia_stand_ins: cc failed")


if __name__ == "__main__":
    main(*sys.argv[1:3])
