#!/usr/bin/env python3
"""Makes stand-ins for shared libraries that a library needs and this machine lacks, so that the library loads.

usage: stand_ins.py LIBRARY OUT_DIR

A stand-in has the name of a missing library and all functions that no installed library defines; each returns 100,
CUDA's "no device". Only NVIDIA's libraries are replaced, and never its driver (libcuda). OUT_DIR also gets links to the
toolkit's NVIDIA libraries, so that LD_LIBRARY_PATH needs only this folder.
"""
import glob
import os
import re
import subprocess
import sys

NVIDIA = re.compile(r"lib(cu(?!da\.)|nv|nccl)\w*\.so")
TOOLKIT = ["/usr/local/cuda/lib64", "/usr/local/cuda/lib"]


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def needed(library):
    return re.findall(r"NEEDED.*\[(.*)\]", output("readelf", "-d", library))


def run_path(library):
    found = re.search(r"(?:RPATH|RUNPATH).*\[(.*)\]", output("readelf", "-d", library))
    here = os.path.dirname(os.path.realpath(library))
    return [part.replace("$ORIGIN", here) for part in (found[1] if found else "").split(":") if part]


def symbols(library, *options):
    """The names of the dynamic symbols, without their versions."""
    return {line.split()[-1].partition("@")[0] for line in output("nm", "-D", *options, library).splitlines()}


def closure(library):
    """Everything that is loaded with `library` as {path}, and the names that are missing."""
    cache = dict(re.findall(r"^\s*(\S+) .* => (\S+)$", output("/sbin/ldconfig", "-p"), re.M))
    found, missing, queue, folders = {}, set(), [library], []
    while queue:
        path = queue.pop()
        folders += run_path(path)
        for name in needed(path):
            if name in found or name in missing:
                continue
            places = [os.path.join(f, name) for f in folders + TOOLKIT] + [cache.get(name, "")]
            place = next((p for p in places if os.path.exists(p)), None)
            if place:
                found[name] = place
                queue.append(place)
            elif NVIDIA.match(name):
                missing.add(name)
            else:
                sys.exit(f"{path} needs {name}, which is not here and is not NVIDIA's")
    return found, missing


def main():
    library, out = sys.argv[1:3]
    os.makedirs(out, exist_ok=True)
    found, missing = closure(library)
    loaded = [library, *found.values()]
    defined = set().union(*(symbols(path, "--defined-only") for path in loaded))
    wanted = set()
    for path in loaded:
        weak = {line.split()[-1].partition("@")[0] for line in output("nm", "-D", "--undefined-only", path).splitlines()
                if line.split()[-2] in "wv"}
        wanted |= symbols(path, "--undefined-only") - weak
    source = os.path.join(out, "stand_in.c")
    with open(source, "w") as file:
        file.writelines(f"long {name}(void) {{ return 100; }}\n" for name in sorted(wanted - defined))
    for name in missing:
        subprocess.run(["gcc", "-shared", "-fPIC", "-w", f"-Wl,-soname,{name}", "-o", os.path.join(out, name), source],
                       check=True)
    for folder in TOOLKIT:
        for path in glob.glob(os.path.join(folder, "lib*.so.*")):
            link = os.path.join(out, os.path.basename(path))
            if NVIDIA.match(os.path.basename(path)) and not os.path.lexists(link):
                os.symlink(path, link)
    print(f"{len(loaded)} libraries, stand-ins for {', '.join(sorted(missing)) or 'none'} "
          f"({len(wanted - defined)} functions)")


main()
