#!/usr/bin/env python3
"""Compiles every public header alone: it must include everything that it uses.

    tools/public_headers.py BUILD [--torch-free | --full] [HEADER ...]

Public headers are those that cmake/Install.cmake installs; HEADER selects others. Each is the only include of a unit,
compiled with the build's own options. LibTorch's headers take some seconds to parse, so units that need them are
compiled after the build's precompiled header, which reveals missing includes of our headers and of LibTorch headers
outside it; with --full they are also compiled without it (minutes), which reveals missing standard headers; with
--torch-free they are skipped (they take four fifths of the time). Units without LibTorch are kept in
BUILD/header_units, so that ccache, if installed, recognizes them. Exit status 1 when a header does
not compile; the last line has the processor time.
"""
import argparse, concurrent.futures, json, os, re, resource, shlex, shutil, subprocess, sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tools", "docs"))
import headers  # noqa: E402  (the list of public headers)


def needs_torch(header, known={}):
    """Whether a header includes LibTorch, directly or through other Tessera headers."""
    if header not in known:
        known[header] = False  # as with #pragma once, headers that include each other end the recursion here
        with open(os.path.join(ROOT, header), encoding="utf-8") as file:
            text = file.read()
        known[header] = bool(re.search(r"^#include <(ATen|c10|torch)/", text, re.M)) or any(
            needs_torch(other) for other in re.findall(r"^#include [<\"](tessera/[^>\"]+)[>\"]", text, re.M))
    return known[header]


def options_of(build, object_part):
    """The compiler and its options for a unit of the build, without compiler caches and file names."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        commands = [e["command"] for e in json.load(file) if object_part in e["command"]]
    if not commands:
        sys.exit(f"public_headers: {build} compiles nothing of {object_part}")
    words = shlex.split(commands[0])
    start = next(i for i, w in enumerate(words) if re.search(r"(^|/)[\w-]*(g\+\+|clang\+\+|c\+\+)(-\d+)?$", w))
    words, options = words[start:], []
    while words:
        word = words.pop(0)
        if word in ("-o", "-c", "-MF", "-MT"):
            words.pop(0)
        elif word not in ("-MD",):
            options.append(word)
    return options


def without_precompiled(options):
    result, words = [], list(options)
    while words:
        word = words.pop(0)
        if word == "-include":  # g++: -include FILE
            words.pop(0)
        elif word == "-Xclang" and words[0] in ("-include-pch", "-include"):  # clang: ... -Xclang FILE
            del words[:3]
        elif word not in ("-Winvalid-pch", "-fpch-preprocess"):
            result.append(word)
    return result


def compiled(build, options, header):
    """The compiler's messages for a unit that includes the header only; empty: it compiles."""
    path = header if os.path.isabs(header) else None
    unit = f'#include "{path}"\n' if path else f"#include <{header}>\n"
    command, environment = [*options, "-fsyntax-only", "-x", "c++", "-"], os.environ
    if not path and not needs_torch(header) and shutil.which("ccache"):  # ccache does not cache -fsyntax-only
        name = os.path.join("header_units", header.replace("/", "_"))
        os.makedirs(os.path.join(build, "header_units"), exist_ok=True)
        with open(os.path.join(build, name + ".cpp"), "w", encoding="utf-8") as file:
            file.write(unit)
        command = ["ccache", *options, "-g0", "-c", name + ".cpp", "-o", name + ".o"]
        sloppiness = "include_file_mtime,include_file_ctime"
        environment = {**os.environ, "CCACHE_BASEDIR": ROOT, "CCACHE_NOHASHDIR": "1", "CCACHE_SLOPPINESS": sloppiness}
    done = subprocess.run(command, input=unit, cwd=build, text=True, env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    return (done.stdout or f"exit status {done.returncode}\n") if done.returncode else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--torch-free", action="store_true")
    which.add_argument("--full", action="store_true")
    parser.add_argument("headers", nargs="*", metavar="HEADER")
    args = parser.parse_args()
    build = os.path.abspath(args.build)
    plain = without_precompiled(options_of(build, "tessera_layer_base.dir"))
    faces = options_of(build, "tessera_layer_faces.dir")
    jobs = []
    for header in args.headers or sorted(headers.public_headers()):
        if not needs_torch(header):
            jobs.append((plain, header))
            continue
        if args.torch_free:
            continue
        jobs.append((faces, header))
        if args.full:
            jobs.append((without_precompiled(faces), header))
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", os.cpu_count()))) as pool:
        said = list(pool.map(lambda job: compiled(build, *job), jobs))
    wrong = sorted({header for (_, header), text in zip(jobs, said) if text})
    for (_, header), text in zip(jobs, said):
        if text:
            print(f"{header} does not compile alone:\n" + "\n".join(text.splitlines()[:12]))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{len({h for _, h in jobs}) - len(wrong)} public headers compile alone, {len(wrong)} do not "
          f"({used.ru_utime + used.ru_stime:.0f} s of processor time)")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
