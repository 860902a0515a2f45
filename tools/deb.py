#!/usr/bin/env python3
"""Makes a Debian package of a build: everything below /opt/tessera, and /usr/bin/tessera.

    tools/deb.py BUILD [--output dist]

Debian does not package our version of LibTorch, so its CPU libraries and headers are included, below
/opt/tessera/torch; Debian's own libraries are dependencies. For GPUs use the wheel, whose torch has the CUDA part.
"""
import argparse, glob, os, re, shutil, tempfile

import wheel

TORCH_LIBRARIES = ("libtorch_cpu.so", "libc10.so", "libgomp.so.1")
CUDA_LIBRARIES = ("libcudart.so.13", "libcupti.so.13")  # CUDA libraries that libtorch_cpu.so is linked to
RUN_PATHS = {"lib": "$ORIGIN:$ORIGIN/../torch/lib", "bin": "$ORIGIN/../lib"}
CONTROL = """Package: tessera
Version: {version}
Architecture: amd64
Maintainer: Tessera
Section: science
Priority: optional
Installed-Size: {kibibytes}
Depends: {depends}
Recommends: libcurl4, ca-certificates
Description: distributed training of transformer models in C++ on LibTorch
 The program, its libraries and headers, and the CPU part of LibTorch 2.11.0. CMake finds it with
 -DCMAKE_PREFIX_PATH=/opt/tessera.
"""


def depends(folder):
    """Packages of the Debian libraries that Tessera's libraries and LibTorch are linked to. Those for s3://
    are only recommended, because ldd would list everything that libcurl is linked to."""
    packages = set()
    for path in wheel.libraries(os.path.join(folder, "lib")) + glob.glob(os.path.join(folder, "torch/lib/*")):
        if os.path.basename(path) == "libtessera_s3.so":
            continue
        for at in re.findall(r"=> (/(?:usr/)?lib/\S+)", wheel.output_of("ldd", path)):
            packages.add(wheel.package_of(os.path.realpath(at)))
    return ", ".join(f"libc6 (>= {'.'.join(map(str, wheel.GLIBC))})" if p == "libc6" else p for p in sorted(packages))


def make(build, torch, output):
    version = wheel.version_of_sources()
    with tempfile.TemporaryDirectory(prefix="tessera-deb-") as stage:
        os.chmod(stage, 0o755)
        prefix = os.path.join(stage, "opt", "tessera")
        wheel.output_of("cmake", "--install", build, "--prefix", prefix, "--strip")
        for name in ("libtessera_cuda.so", "libtessera_arrow.so"):  # of no use without CUDA's and Arrow's libraries
            if os.path.exists(os.path.join(prefix, "lib", name)):
                os.remove(os.path.join(prefix, "lib", name))
        for path in wheel.libraries(os.path.join(prefix, "lib")) + [os.path.join(prefix, "bin", "tessera")]:
            wheel.set_run_path(path, RUN_PATHS[os.path.basename(os.path.dirname(path))])
        for names, source, target in ((TORCH_LIBRARIES, "torch/lib", "torch/lib"),
                                      (CUDA_LIBRARIES, "nvidia/cu13/lib", "nvidia/cu13/lib")):
            os.makedirs(os.path.join(prefix, target))
            for name in names:
                shutil.copy(os.path.join(torch, source, name), os.path.join(prefix, target))
        shutil.copy(os.path.join(torch, "torch", "version.py"), os.path.join(prefix, "torch"))
        shutil.copytree(os.path.join(torch, "torch", "include"), os.path.join(prefix, "torch", "include"))
        licences = os.path.join(stage, "usr/share/doc/tessera")
        os.makedirs(licences)
        for text in glob.glob(os.path.join(torch, "torch-*.dist-info", "licenses", "*")):
            if os.path.isfile(text):
                shutil.copy(text, os.path.join(licences, "torch-" + os.path.basename(text)))
        os.makedirs(os.path.join(stage, "usr/bin"))
        os.symlink("../../opt/tessera/bin/tessera", os.path.join(stage, "usr/bin/tessera"))
        kibibytes = sum(os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(prefix)
                        for name in names) // 1024
        wheel.write(os.path.join(stage, "DEBIAN", "control"),
                    CONTROL.format(version=version, kibibytes=kibibytes, depends=depends(prefix)))
        os.makedirs(output, exist_ok=True)
        deb = os.path.join(output, f"tessera_{version}_amd64.deb")
        wheel.output_of("dpkg-deb", "--root-owner-group", "-Zxz", "-z1", "--build", stage, deb)
        return deb


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--output", default="dist")
    parser.add_argument("--torch", default=os.path.join(wheel.ROOT, ".deps", "torch"))
    args = parser.parse_args()
    deb = make(args.build, args.torch, args.output)
    print(f"{deb}: {os.path.getsize(deb) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
