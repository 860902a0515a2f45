#!/usr/bin/env python3
"""Makes a wheel of a build, for people who install with pip.

    tools/wheel.py BUILD [--output dist]

The wheel is `cmake --install` below site-packages/tessera: program, libraries, headers, CMake files, examples, and
two lines of Python that start the program and locate the CMake files. The modules of python/ (a backend of
torch.distributed, Horovod's names) are included; they need only the adjacent libtessera_c.so. LibTorch is found in
site-packages/torch, Arrow in site-packages/pyarrow, by run paths relative to the libraries. The few Debian libraries
that ours are linked to are included, with their licences. The same build gives the same bytes.
"""
import argparse, base64, glob, hashlib, os, re, shutil, subprocess, sys, tempfile, zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PLATFORM = "manylinux_2_36_x86_64"  # Debian 12's glibc, on which the wheel is built
GLIBC = (2, 36)
TORCH, ARROW = "torch==2.11.0", "pyarrow==26.0.1"  # tools/deps.sh
# Libraries that every Linux of that platform has (PEP 600), that the wheels we depend on provide, or that only s3://
# needs (the system's libcurl, which knows the system's certificates).
ELSEWHERE = re.compile(r"(ld-linux|lib(c|m|gcc_s|stdc\+\+|z|torch\w*|c10\w*|gomp|cudart|arrow|parquet|curl|crypto|"
                       r"tessera\w*)\.so)")
# Linked into Tessera's libraries; their licences are included.
STATIC_LIBRARIES = tuple(f"/usr/lib/x86_64-linux-gnu/{name}.a" for name in ("libcrypto", "libpugixml"))
RUN_PATHS = {"lib": "$ORIGIN:$ORIGIN/../../torch/lib:$ORIGIN/../../nvidia/cu13/lib:$ORIGIN/../../pyarrow",
             "bin": "$ORIGIN/../lib"}

MAIN = '''"""python -m tessera --cmake-prefix-path | --cpu-requirements | the program's own arguments"""
import sys

import tessera

if sys.argv[1:] == ["--cmake-prefix-path"]:
    print(tessera.cmake_prefix_path)
elif sys.argv[1:] == ["--cpu-requirements"]:
    print("{requirements}")
else:
    tessera.run()
'''
METADATA = '''Metadata-Version: 2.1
Name: tessera
Version: {version}
Summary: Distributed training of transformer models in C++ on LibTorch
Requires-Python: >=3.9
Requires-Dist: {torch}
Provides-Extra: parquet
Requires-Dist: {arrow} ; extra == "parquet"
Provides-Extra: cuda
Requires-Dist: {torch} ; extra == "cuda"
Description-Content-Type: text/markdown

`tessera train`, `tessera launch`, `tessera plan`, `tessera chat` ...; `tessera --help` lists them. For C++:
`cmake -DCMAKE_PREFIX_PATH=$(python -m tessera --cmake-prefix-path)` and `find_package(Tessera)`.

torch brings the CUDA libraries along. Without a GPU a tenth of them is enough:
`pip install --no-deps tessera-{version}-py3-none-{platform}.whl`, then
`python -m tessera --cpu-requirements | xargs pip install --no-deps`.
'''


def fail(why):
    sys.exit(f"wheel: {why}")


def output_of(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        fail(f"{' '.join(command)} failed: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout


def small_set():
    """The packages that tools/deps.sh installs: torch, and the libraries that its CPU library is linked to."""
    line = re.search(r"^wheels=\((.*)\)$", open(os.path.join(ROOT, "tools", "deps.sh")).read(), re.M)
    return line.group(1) if line else fail("tools/deps.sh has no list of wheels")


def version_of_sources():
    text = open(os.path.join(ROOT, "tessera", "base", "version.h")).read()
    numbers = re.findall(r"version_(?:major|minor|patch) = (\d+)", text)
    return ".".join(numbers) if len(numbers) == 3 else fail("tessera/base/version.h says no version")


def set_run_path(path, wanted):
    """Replaces the run path, which may not become longer, because nothing in the file can move."""
    found = re.search(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", output_of("readelf", "-d", path))
    if not found:
        fail(f"{path} has no run path")
    old, new, data = found.group(1).encode(), wanted.encode(), open(path, "rb").read()
    if len(new) > len(old) or data.count(old + b"\0") != 1:
        fail(f"{path}: the run path {found.group(1)} cannot become {wanted}")
    with open(path, "wb") as file:
        file.write(data.replace(old + b"\0", new.ljust(len(old), b"\0") + b"\0"))


def libraries(folder):
    """The files of our libraries, without links and the wheel's linker scripts, which only refer to them."""
    def is_library(path):
        with open(path, "rb") as file:
            return file.read(4) == b"\x7fELF"
    return [p for p in sorted(glob.glob(os.path.join(folder, "*.so*"))) if not os.path.islink(p) and is_library(p)]


def replace_links(lib):
    """Replaces links, which a wheel cannot contain. The file gets the name that programs look for; the linker's name,
    libtessera.so, becomes a linker script that refers to it."""
    for path in libraries(lib):
        found = re.search(r"\(SONAME\).*\[(.*)\]", output_of("readelf", "-d", path))
        if found and found.group(1) != os.path.basename(path):
            os.replace(path, os.path.join(lib, found.group(1)))  # replaces the link of that name
            linker = re.sub(r"\.so\..*", ".so", path)
            os.remove(linker)
            write(linker, f"INPUT({found.group(1)})\n")


def foreign_libraries(lib):
    """Files of the Debian libraries that ours need."""
    ours, found = libraries(lib), {}
    for path in ours:
        for name in re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "-d", path)):
            if ELSEWHERE.match(name):
                continue
            at = re.search(rf"{re.escape(name)} => (\S+)", output_of("ldd", path))
            found[name] = os.path.realpath(at.group(1)) if at else fail(f"{path} needs {name}, which is not found")
    return found


def set_torch_of_pkgconfig(lib):
    """Makes pkg-config look for LibTorch where pip puts it."""
    path = os.path.join(lib, "pkgconfig", "tessera.pc")
    with open(path) as file:
        text = file.read()
    write(path, re.sub(r"^torch=.*$", "torch=${pcfiledir}/../../../torch", text, flags=re.M))


def package_of(library):
    """The Debian package of a library; one from before /lib became a link to /usr/lib is listed under that path."""
    for path in (library, library.removeprefix("/usr")):
        found = subprocess.run(["dpkg-query", "-S", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if found.returncode == 0:
            return found.stdout.split(":")[0]
    return fail(f"{library} is of no Debian package")


def copy_licence(library, folder):
    package = package_of(library)
    text = f"/usr/share/doc/{package}/copyright"
    if os.path.exists(text):
        shutil.copy(text, os.path.join(folder, package + ".txt"))
    else:
        fail(f"no licence of {library} is found ({text}), so it may not be given away")


def check_glibc(path):
    versions = re.findall(r"GLIBC_([0-9.]+)", output_of("objdump", "-T", path))
    newest = max((tuple(map(int, v.split("."))) for v in versions),
                 default=(0,))
    if newest > GLIBC:
        fail(f"{path} needs glibc {'.'.join(map(str, newest))}; {PLATFORM} has {'.'.join(map(str, GLIBC))}")


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


def copy_modules(package, version):
    """The Python modules, with the version of the sources in place of theirs."""
    modules = os.path.join(ROOT, "python", "tessera")
    for path in sorted(glob.glob(os.path.join(modules, "**", "*.py"), recursive=True)):
        with open(path) as file:
            text = file.read()
        write(os.path.join(package, os.path.relpath(path, modules)), text)
    init = os.path.join(package, "__init__.py")
    with open(init) as file:
        text = file.read()
    changed = re.sub(r'__version__ = "0\.0\.0".*', f'__version__ = "{version}"', text)
    write(init, changed) if changed != text else fail("python/tessera/__init__.py has no __version__ to be written")


def make(build, output):
    version = version_of_sources()
    with tempfile.TemporaryDirectory(prefix="tessera-wheel-") as stage:
        package, info = os.path.join(stage, "tessera"), os.path.join(stage, f"tessera-{version}.dist-info")
        output_of("cmake", "--install", build, "--prefix", package, "--strip")
        lib = os.path.join(package, "lib")
        replace_links(lib)
        set_torch_of_pkgconfig(lib)
        foreign = foreign_libraries(lib)
        for path in libraries(lib) + [os.path.join(package, "bin", "tessera")]:
            set_run_path(path, RUN_PATHS[os.path.basename(os.path.dirname(path))])
            check_glibc(path)
        os.makedirs(os.path.join(info, "licenses"))
        for name, path in foreign.items():
            shutil.copy(path, os.path.join(lib, name))
            check_glibc(path)
            copy_licence(path, os.path.join(info, "licenses"))
        for path in STATIC_LIBRARIES:
            copy_licence(path, os.path.join(info, "licenses"))
        shutil.copy(os.path.join(ROOT, "LICENSE"), os.path.join(info, "licenses"))
        values = dict(version=version, torch=TORCH, arrow=ARROW, platform=PLATFORM, requirements=small_set())
        copy_modules(package, version)
        write(os.path.join(package, "__main__.py"), MAIN.format(**values))
        write(os.path.join(info, "METADATA"), METADATA.format(**values))
        write(os.path.join(info, "WHEEL"), "Wheel-Version: 1.0\nGenerator: tessera tools/wheel.py\n"
              f"Root-Is-Purelib: false\nTag: py3-none-{PLATFORM}\n")
        write(os.path.join(info, "entry_points.txt"), "[console_scripts]\ntessera = tessera:run\n")
        os.makedirs(output, exist_ok=True)
        wheel = os.path.join(output, f"tessera-{version}-py3-none-{PLATFORM}.whl")
        write_zip(wheel, stage, info)
        return wheel


def write_zip(wheel, stage, info):
    record = os.path.relpath(os.path.join(info, "RECORD"), stage)
    names = sorted(os.path.relpath(os.path.join(folder, name), stage)
                   for folder, _, files in os.walk(stage) for name in files)
    lines = []
    with zipfile.ZipFile(wheel + ".new", "w", zipfile.ZIP_DEFLATED) as archive:
        def add(name, data, mode):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
        for name in names:
            path = os.path.join(stage, name)
            data = open(path, "rb").read()
            add(name, data, 0o755 if os.access(path, os.X_OK) else 0o644)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(data)}\n")
        add(record, "".join(lines) + f"{record},,\n", 0o644)
    os.replace(wheel + ".new", wheel)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--output", default="dist")
    args = parser.parse_args()
    wheel = make(args.build, args.output)
    print(f"{wheel}: {os.path.getsize(wheel) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
