"""Makes tests/fixtures/accelerate/*.env: the environment that a real `accelerate launch --config_file X.yaml` gives
rank 0.

    python tests/parity/accelerate_environments.py          (needs accelerate; checked with 1.15.0; deepspeed for its
    two files)

Each line is NAME=VALUE, sorted: the variables that depend on the configuration (ACCELERATE_*, FSDP_*,
PARALLELISM_CONFIG_*, MEGATRON_LM_*), without those of torchrun, which every launcher sets.
"""
import glob, os, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.join(HERE, "..", "fixtures", "accelerate")
PREFIXES = ("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_", "MEGATRON_LM_")
DUMP = """
import os, sys
if os.environ.get("RANK", "0") == "0":
    lines = sorted(f"{k}={v}" for k, v in os.environ.items() if k.startswith(%r))
    open(sys.argv[1], "w").write("\\n".join(lines) + "\\n")
""" % (PREFIXES,)


def dump(config, more=()):
    with tempfile.TemporaryDirectory() as folder:
        script, out = os.path.join(folder, "dump.py"), os.path.join(folder, "out.env")
        with open(script, "w") as file:
            file.write(DUMP)
        environment = {k: v for k, v in os.environ.items() if not k.startswith(PREFIXES)}
        environment["HF_HOME"] = folder  # ignores this user's default_config.yaml
        subprocess.run([sys.executable, "-m", "accelerate.commands.launch", "--config_file", config,
                        "--main_process_port", "0", *more, script, out],
                       check=True, cwd=FIXTURES, env=environment)
        with open(out) as file:
            return file.read()


if __name__ == "__main__":
    for path in sorted(glob.glob(os.path.join(FIXTURES, "*.yaml"))):
        text = dump(os.path.basename(path))
        with open(path[:-5] + ".env", "w") as file:
            file.write(text)
        print(os.path.basename(path), len(text.splitlines()), "variables")
