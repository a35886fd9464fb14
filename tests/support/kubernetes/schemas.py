"""JSON schemas of Kubernetes' own kinds, for kubeconform, made from the OpenAPI file that its Go module carries.

    schemas.py OUT VERSION…     OUT/VERSION/KIND-GROUP-VERSION.json, such as OUT/v1.36.3/deployment-apps-v1.json

An unknown field is an error, as it is to `kubectl apply --validate=strict`.
"""

import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

# What manifests are checked against, and the digest of each version's OpenAPI file.
VERSIONS = {
    "v1.30.14": "137f22097f146caa3150deda2eccceec1ecd0b628054d1887bf55f93e715c7cb",
    "v1.33.13": "2af5abf98554af1599e516f31f7f1698085e6faa12b816401f569c097b9f7ef6",
    "v1.36.3": "dcede2063da1d7ad62ecb5af8adb6d7fabd0b52385a7fa0048afb491dac90450",
}

INT_OR_STRING = {"oneOf": [{"type": "string"}, {"type": "integer"}]}
SPECIAL = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": INT_OR_STRING,
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
}


def open_api(version: str) -> dict:
    """The OpenAPI file of `version`, from the Go proxy or the module cache. RuntimeError if it is not the one known."""
    listing = subprocess.run(["go", "mod", "download", "-json", f"k8s.io/kubernetes@{version}"], check=True, text=True,
                             capture_output=True, cwd="/", env={**os.environ, "GOFLAGS": ""}).stdout
    content = (pathlib.Path(json.loads(listing)["Dir"]) / "api/openapi-spec/swagger.json").read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != VERSIONS[version]:
        raise RuntimeError(f"the OpenAPI file of Kubernetes {version} has the digest {digest}")
    return json.loads(content)


def strict(schema: dict) -> dict:
    """`schema` without fields it does not name."""
    if "properties" in schema and "additionalProperties" not in schema:
        schema = {**schema, "additionalProperties": False}
    return schema


def needed(definitions: dict, name: str, found: dict) -> dict:
    """`found`, with the definition `name` and all that it refers to, in one file: kubeconform follows no other."""
    if name not in found:
        found[name] = SPECIAL.get(name) or strict(definitions[name])
        for other in re.findall(r'"#/definitions/([^"]+)"', json.dumps(found[name])):
            needed(definitions, other, found)
    return found


def make(out: pathlib.Path, version: str) -> None:
    definitions = open_api(version)["definitions"]
    out.mkdir(parents=True, exist_ok=True)
    for name, definition in definitions.items():
        for kind in definition.get("x-kubernetes-group-version-kind", []):
            if len(definition["x-kubernetes-group-version-kind"]) > 1:  # DeleteOptions and the like: of every group
                continue
            found = needed(definitions, name, {})
            group = kind["group"].split(".")[0]
            suffix = "-".join(part.lower() for part in (kind["kind"], group, kind["version"]) if part)
            (out / f"{suffix}.json").write_text(json.dumps({"$ref": f"#/definitions/{name}", "definitions": found}))


if __name__ == "__main__":
    for wanted in sys.argv[2:] or VERSIONS:
        make(pathlib.Path(sys.argv[1]) / wanted, wanted)
