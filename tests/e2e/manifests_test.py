"""What is installed into a cluster is valid in each version of Kubernetes that is supported, unknown fields included."""

import pathlib
import subprocess
import tempfile
import unittest

import binaries
import fixture
import schemas


def kustomizations() -> list:
    return sorted(path.parent for path in (fixture.ROOT / "manifests").rglob("kustomization.yaml"))


def rendered(folder: pathlib.Path) -> str:
    return subprocess.run([str(binaries.path("kubectl")), "kustomize", str(folder)], check=True, text=True,
                          capture_output=True).stdout


class ManifestsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        for version in schemas.VERSIONS:
            schemas.make(cls.folder / version, version)

    def check(self, text: str, version: str) -> subprocess.CompletedProcess:
        pattern = f"{self.folder}/{version}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
        return subprocess.run([str(binaries.path("kubeconform")), "-strict", "-schema-location", pattern, "-"], input=text,
                              text=True, capture_output=True, check=False)

    def test_every_kustomization_is_valid_in_every_version(self):
        self.assertTrue(kustomizations())
        for folder in kustomizations():
            text = rendered(folder)
            for version in schemas.VERSIONS:
                with self.subTest(folder=str(folder.relative_to(fixture.ROOT)), version=version):
                    result = self.check(text, version)
                    self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_an_unknown_field_and_a_wrong_type_are_found(self):
        # That the schemas are strict, or the test beside this one would prove nothing.
        for wrong in ("replicaz: 1", "replicas: one"):
            text = f"""apiVersion: apps/v1
kind: Deployment
metadata: {{name: x}}
spec:
  selector: {{matchLabels: {{a: b}}}}
  template: {{metadata: {{labels: {{a: b}}}}, spec: {{containers: [{{name: main, image: example}}]}}}}
"""
            for version in schemas.VERSIONS:
                self.assertEqual(self.check(text, version).returncode, 0)
                self.assertNotEqual(self.check(text + f"  {wrong}\n", version).returncode, 0)


if __name__ == "__main__":
    unittest.main()
