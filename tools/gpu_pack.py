#!/usr/bin/env python3
"""Packs everything that a machine with a GPU needs to check Tessera without a compiler and without a network.

usage: tools/gpu_pack.py BUILD PACK [--double]

BUILD was built with the CUDA plug-in. PACK gets the program, its libraries including Debian's, the test program
device_check, its fixtures and gpu_check.py, stripped. LibTorch itself is taken from the other machine (the same wheel,
torch 2.11.0+cu130). --double: the tests' double of the device replaces the plug-in, for a machine without a GPU.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Not packed: libraries of LibTorch and CUDA, and libraries that every Linux with glibc 2.36 or later has.
OTHERS = re.compile(r"lib(torch|c10|shm|caffe2|cu|nv|nccl|gomp|arrow|parquet)|ld-linux|linux-vdso|"
                    r"lib(c|m|dl|rt|util|pthread|gcc_s|stdc\+\+)\.so")
MOST_MB = 30  # the pack has to be copied to the machine


def libraries_of(path):
    """{name: path} of the libraries that `path` loads and that the other machine may lack."""
    out = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
    found = dict(re.findall(r"^\s*(\S+) => (/\S+)", out, re.M))
    return {name: place for name, place in found.items() if not OTHERS.match(name)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("pack")
    parser.add_argument("--double", action="store_true")
    options = parser.parse_args()
    options.build = os.path.abspath(options.build)  # absolute, like the run paths of existing files
    plugin = os.path.join(options.build, "double" if options.double else "", "libtessera_cuda.so")
    if not os.path.exists(plugin):
        sys.exit(f"gpu_pack: {plugin} was not built; configure with -DTESSERA_CUDA=ON")
    shutil.rmtree(options.pack, ignore_errors=True)
    lib = os.path.join(options.pack, "lib")
    os.makedirs(lib)
    programs = [os.path.join(options.build, "tessera"), os.path.join(options.build, "tests", "device_check")]
    tool = os.path.join(options.build, "libtessera_tool.so")
    wanted = {"libtessera_tool.so": tool, "libtessera_cuda.so": plugin}
    for path in programs + [tool]:
        wanted.update(libraries_of(path))
    for name, path in wanted.items():
        shutil.copy(path, os.path.join(lib, name))
        subprocess.run(["strip", "--strip-unneeded", os.path.join(lib, name)], check=False)
    for path in programs:
        shutil.copy(path, options.pack)
        subprocess.run(["strip", os.path.join(options.pack, os.path.basename(path))], check=True)
    shutil.move(os.path.join(lib, "libtessera_tool.so"), options.pack)  # the program searches its own folder for it
    shutil.copytree(os.path.join(HERE, "tests/fixtures/llama"), os.path.join(options.pack, "tests/fixtures/llama"),
                    ignore=shutil.ignore_patterns("expected*"))
    shutil.copy(os.path.join(HERE, "tools/gpu_check.py"), options.pack)
    files = [os.path.join(folder, name) for folder, _, names in os.walk(options.pack) for name in names]
    size = sum(os.path.getsize(path) for path in files) / 1e6
    print(f"{options.pack}: {size:.1f} MB, {len(wanted)} libraries")
    if size > MOST_MB:
        sys.exit(f"gpu_pack: more than {MOST_MB} MB")


main()
