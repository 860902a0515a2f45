#!/usr/bin/env python3
"""Validates the job files of `tessera launch --emit` against the schemas that their systems publish.

    tools/job_schemas.py CRDS build/tessera      (needs the Python packages pyyaml and jsonschema)

CRDS is a folder with the projects' custom resource definitions, under any names:
  kubernetes-sigs/jobset   config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml
  kubeflow/trainer         manifests/base/crds/trainer.kubeflow.org_{trainjobs,trainingruntimes}.yaml
  kubeflow/mpi-operator    manifests/base/kubeflow.org_mpijobs.yaml
  volcano-sh/volcano       config/crd/volcano/bases/batch.volcano.sh_jobs.yaml
An unknown field is an error, as in `kubectl apply` with strict validation. A plain Job has no such definition: its
spec is validated against the Job inside a JobSet. Prints one line for each object; exit code 1 when one is invalid.
"""
import glob
import itertools
import os
import subprocess
import sys

import jsonschema
import yaml


def strict(schema):
    """The schema as JSON Schema, with unknown fields rejected where Kubernetes would drop them."""
    if isinstance(schema, list):
        return [strict(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    out = {k: strict(v) for k, v in schema.items() if not k.startswith("x-kubernetes") and k != "format"}
    if isinstance(out.get("properties"), dict) and "additionalProperties" not in out:
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            out["additionalProperties"] = False
    if schema.get("x-kubernetes-int-or-string"):
        out.pop("anyOf", None)
        out["type"] = ["integer", "string"]
    return out


def definitions(folder):
    found = {}
    for path in sorted(glob.glob(os.path.join(folder, "*.yaml"))):
        for crd in yaml.safe_load_all(open(path)):
            if not crd or crd.get("kind") != "CustomResourceDefinition":
                continue
            spec = crd["spec"]
            for version in spec["versions"]:
                schema = version["schema"]["openAPIV3Schema"]
                # Objects also have the API's own metadata, which the definitions do not describe.
                schema["properties"]["metadata"] = {
                    "type": "object",
                    "properties": {"name": {"type": "string", "pattern": "^[a-z0-9-]{1,63}$"},
                                   "namespace": {"type": "string"}},
                    "additionalProperties": False}
                found[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = strict(schema)
    job = found["jobset.x-k8s.io/v1alpha2", "JobSet"]
    for step in ("spec", "replicatedJobs", "items", "template", "spec"):
        job = job["properties"][step] if step != "items" else job["items"]
    found["batch/v1", "Job"] = {"type": "object", "properties": {"spec": job}}
    return found


def main():
    crds, program = sys.argv[1:]
    known = definitions(crds)
    bad = 0
    extra = {"plain": [], "all": ["--gpus_per_machine", "8", "--cpus_per_machine", "16", "--namespace", "ml",
                                  "--max_restarts", "2", "--export", "A=b", "--partition", "queue"]}
    for kind, machines, (name, flags) in itertools.product(
            ("kubernetes", "jobset", "trainjob", "mpijob", "volcano"), (1, 2), extra.items()):
        text = subprocess.run([program, "launch", "--emit", kind, "--image", "i:1", "--num_machines", str(machines),
                               "--nproc_per_node", "4", *flags, "--", "tessera", "train"],
                              check=True, capture_output=True, text=True).stdout
        for document in yaml.safe_load_all(text):
            which = document["apiVersion"], document["kind"]
            if which in (("v1", "Secret"), ("v1", "Service")):
                continue
            errors = list(jsonschema.Draft202012Validator(known[which]).iter_errors(document))
            bad += bool(errors)
            verdict = "DOES NOT FIT" if errors else "fits"
            print(f"{kind} {name}, {machines} machines: {which[0]} {which[1]}: {verdict}")
            for error in errors:
                print("   ", "/".join(map(str, error.absolute_path)), error.message[:200])
    sys.exit(bad > 0)


main()
