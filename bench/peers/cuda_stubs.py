"""Stand-ins for the NVIDIA libraries that PyTorch's wheel is linked against, so that it imports and runs on a processor
without their 2.1 GB: every function returns 100, "no device". Do not use where a GPU is needed.

    cuda_stubs.py .../site-packages/torch/lib       written to that folder, to which the wheel's RPATH points

Needs gcc and binutils.
"""
import collections, os, re, subprocess, sys, tempfile

NVIDIA = re.compile(r"lib(cu(?!da\.)|nv|nccl)\w*\.so\.\d+")  # libcuda belongs to the driver: not replaced
RETURNS_TEXT = re.compile(r"(Error|Status|Result)?(String|Name)$|GetVersionString$")
RETURNS_ZERO = re.compile(r"^(__cuda\w+|cudaGetLastError|cudaPeekAtLastError)$")
BODIES = {"cudaGetDeviceCount": "int cudaGetDeviceCount(int* n) { if (n) *n = 0; return 100; }",
          "cudaStreamIsCapturing": "int cudaStreamIsCapturing(void* s, int* c) { if (c) *c = 0; return 0; }",
          "cudaThreadExchangeStreamCaptureMode": "int cudaThreadExchangeStreamCaptureMode(int* m) { return 0; }"}
# library -> prefix of its symbols without a version
PREFIXES = {"libcufile": "cuFile", "libcusparseLt": "cusparseLt", "libnvshmem_host": "nvshmem", "libnccl": "nccl",
            "libcupti": "cupti", "libcurand": "curand", "libcusolver": "cusolver", "libcufft": "cufft"}


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def wanted_symbols(users):
    """{library: {(symbol, version)}} that these libraries need from NVIDIA's."""
    wanted = collections.defaultdict(set)
    for user in users:
        for name in re.findall(r"NEEDED.*\[(.*)\]", output_of("readelf", "-d", user)):
            if NVIDIA.match(name):
                wanted[name]
    for user in users:
        library_of, library = {}, None  # each version belongs to one library
        for line in output_of("readelf", "-VW", user).splitlines():
            if file := re.search(r"File: (\S+)", line):
                library = file[1]
            elif version := re.search(r"Name: (\S+)", line):
                library_of[version[1]] = library
        for line in output_of("nm", "-D", "--undefined-only", user).splitlines():
            name, _, version = line.split()[-1].partition("@")
            version = version.lstrip("@")
            if library_of.get(version) in wanted:
                wanted[library_of[version]].add((name, version))
            elif not version:
                for library in wanted:
                    prefix = PREFIXES.get(library.split(".so")[0])
                    if prefix and re.match(rf"_?_?{prefix}", name):
                        wanted[library].add((name, ""))
    return wanted


def body_of(name):
    if name in BODIES:
        return BODIES[name]
    if RETURNS_TEXT.search(name):  # a caller prints it
        return f'const char* {name}(void) {{ return "no NVIDIA library here (stand-in)"; }}'
    return f"long {name}(void) {{ return {0 if RETURNS_ZERO.match(name) else 100}; }}"


def build(library, symbols, folder):
    with tempfile.TemporaryDirectory() as work:
        source, versions_file = os.path.join(work, "stub.c"), os.path.join(work, "versions.map")
        with open(source, "w") as file:
            file.write("\n".join([body_of(name) for name, _ in sorted(symbols)] + ["int tessera_cuda_stub;", ""]))
        versions = sorted({version for _, version in symbols if version})
        with open(versions_file, "w") as file:
            for version in versions:
                names = "".join(f" {name};" for name, own in sorted(symbols) if own == version)
                file.write(f"{version} {{ global:{names} }};\n")
        script = [f"-Wl,--version-script={versions_file}"] if versions else []
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-w", "-o", os.path.join(folder, library),
                        f"-Wl,-soname,{library}", source, *script], check=True)


def main():
    folder = sys.argv[1]
    users = [os.path.join(folder, name) for name in os.listdir(folder)
             if re.match(r"lib(torch|c10|shm|caffe2)\w*\.so", name)]
    for library, symbols in sorted(wanted_symbols(users).items()):
        build(library, symbols, folder)


main()
