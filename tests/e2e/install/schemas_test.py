"""What is installed into a cluster is valid in each version of Kubernetes that is supported, unknown fields included."""

import json
import pathlib
import tempfile
import unittest

import support

import schemas  # noqa: E402, found by support

# Every template of the chart, and every branch of it that makes an object another one.
VALUES = {
    "defaults": [],
    "two replicas": ["--set=replicas=2,metrics.serviceMonitor.enabled=true,metrics.podMonitor.enabled=true"
                     ",metrics.jobsPodMonitor.enabled=true,metrics.prometheusRule.enabled=true,metrics.dashboards.enabled=true"],
    "one namespace": ["--set=watchNamespace=jobs,crds.install=false,image.pullPolicy=Never,jobs.image.pullPolicy=Never"],
    "everything": ["--set=replicas=2,imagePullSecrets[0].name=a,priorityClassName=system-cluster-critical,clusterDomain=c.local"
                   ",gpuResource=example.com/gpu,extraArgs[0]=--workers=8,extraEnv[0].name=A,extraEnv[0].value=b"
                   ",nodeSelector.a=b,tolerations[0].operator=Exists,podLabels.a=b,podAnnotations.a=b,crds.keep=false"
                   ",serviceAccount.annotations.a=b,jobs.image.repository=r/jobs"
                   ",networkPolicy.from[0].namespaceSelector.matchLabels.a=b,podDisruptionBudget.maxUnavailable=50%"
                   ",topologySpreadConstraints[0].maxSkew=1,topologySpreadConstraints[0].topologyKey=zone"
                   ",topologySpreadConstraints[0].whenUnsatisfiable=ScheduleAnyway"],
}
FOREIGN = "ServiceMonitor,PodMonitor,PrometheusRule"  # the Prometheus Operator's


def strict(schema: dict) -> dict:
    """A CustomResourceDefinition's schema as JSON Schema, without fields that it does not name, as the API server reads it."""
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) if isinstance(value, dict) and key in ("items", "additionalProperties") else value
            for key, value in schema.items() if not key.startswith("x-kubernetes-")}
    if "properties" in schema:
        made["properties"] = {name: strict(value) for name, value in schema["properties"].items()}
        if "additionalProperties" not in schema and "x-kubernetes-preserve-unknown-fields" not in schema:
            made["additionalProperties"] = False
    if schema.get("x-kubernetes-int-or-string"):
        made["type"] = ["integer", "string"]
    return made


class SchemasTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        for version in schemas.VERSIONS:
            schemas.make(cls.folder / version, version)

    def check(self, text: str, version: str):
        pattern = f"{self.folder}/{version}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
        return support.ran("kubeconform", "-strict", "-schema-location", pattern, "-skip", FOREIGN, "-summary", "-", text=text)

    def expect_valid_everywhere(self, text: str, **names) -> None:
        for version in schemas.VERSIONS:
            with self.subTest(version=version, **names):
                result = self.check(text, version)
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
                self.assertNotIn(" 0 resources found", result.stdout)

    def test_every_kustomization_is_valid_in_every_version(self):
        folders = sorted(path.parent for path in (support.ROOT / "manifests").rglob("kustomization.yaml"))
        self.assertGreaterEqual(len(folders), 5)
        for folder in folders:
            self.expect_valid_everywhere(support.kustomized(folder), folder=folder.name)

    def test_the_chart_is_valid_in_every_version(self):
        for name, words in VALUES.items():
            self.expect_valid_everywhere(support.template(*words), values=name)

    def test_an_unknown_field_and_a_wrong_type_are_found(self):
        # That the schemas are strict, or the tests beside this one would prove nothing.
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

    def test_the_examples_are_what_the_definition_says(self):
        definition = support.objects(support.CRD.read_text())[0]
        version = definition["spec"]["versions"][0]
        schema = strict(version["schema"]["openAPIV3Schema"])
        schema["properties"]["metadata"] = {"type": "object"}
        folder = self.folder / "ours"
        folder.mkdir()
        (folder / f"trainingjob-lockstep-{version['name']}.json").write_text(json.dumps(schema))
        examples = sorted((support.ROOT / "manifests/examples").glob("*.yaml"))
        self.assertGreaterEqual(len(examples), 5)
        # Those that bring a volume or the like have other kinds beside the job.
        for kubernetes in schemas.VERSIONS:
            for file in (self.folder / kubernetes).glob("*.json"):
                (folder / file.name).exists() or (folder / file.name).symlink_to(file)
        for file in examples:
            with self.subTest(file=file.name):
                result = self.check(file.read_text(), "ours")
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertNotEqual(self.check(examples[0].read_text() + "  replicaz: 1\n", "ours").returncode, 0)


if __name__ == "__main__":
    support.main()
