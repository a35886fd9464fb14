"""Lockstep goes into a cluster by kubectl and by helm, with the same objects, and out of it again."""

import json
import re
import tempfile
import unittest

import support

SPACE = "lockstep-system"
# What helm says of its own, and kustomize has nobody to say it of.
OF_HELM = ("app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart")
WHOLE_CLUSTER = ("Namespace", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding")


def by_name(yaml: str) -> dict:
    """The objects of `yaml` by kind, namespace and name, without labels that are helm's or the same everywhere."""
    found = {}
    for value in support.objects(yaml):
        metadata = value["metadata"]
        space = "" if value["kind"] in WHOLE_CLUSTER else metadata.pop("namespace")
        labels = metadata.pop("labels", {})
        metadata["labels"] = {key: text for key, text in labels.items() if key not in OF_HELM}
        if metadata.get("annotations") == {"helm.sh/resource-policy": "keep"}:
            del metadata["annotations"]
        found[(value["kind"], space, metadata["name"])] = value
    return found


def our_labels(objects: dict) -> None:
    """Takes away what the base's kustomization puts on its own objects and the chart on all: the operator's name."""
    for value in objects.values():
        for key in ("app.kubernetes.io/name", "app.kubernetes.io/part-of"):
            value["metadata"]["labels"].pop(key, None)


class RenderedTest(unittest.TestCase):
    def assert_same(self, chart: dict, manifests: dict) -> None:
        our_labels(chart)
        our_labels(manifests)
        self.assertEqual(sorted(chart), sorted(manifests))
        for name, value in manifests.items():
            self.assertEqual(chart[name], value, name)

    def test_the_chart_makes_what_the_manifests_say(self):
        manifests = by_name(support.kustomized("operator/cluster"))
        del manifests[("Namespace", "", SPACE)]  # helm install --create-namespace
        self.assert_same(by_name(support.template()), manifests)

    def test_so_it_does_for_one_namespace(self):
        manifests = by_name(support.kustomized("operator/namespaced"))
        chart = by_name(support.template("--set=watchNamespace=default,crds.install=false", space="default"))
        # kustomize has the namespace from the pod, the chart from its value.
        container = manifests[("Deployment", "default", "lockstep-operator")]["spec"]["template"]["spec"]["containers"][0]
        container["args"] = [word.replace("$(NAMESPACE)", "default") for word in container["args"]]
        container["env"] = [variable for variable in container["env"] if variable["name"] != "NAMESPACE"]
        self.assert_same(chart, manifests)
        self.assertFalse([kind for kind, _, _ in chart if kind in WHOLE_CLUSTER])

    def test_versions_are_one(self):
        version = re.search(r"project\(lockstep VERSION (\S+)", (support.ROOT / "CMakeLists.txt").read_text()).group(1)
        chart = (support.CHART / "Chart.yaml").read_text()
        self.assertRegex(chart, rf"(?m)^version: {version}$")
        self.assertRegex(chart, rf"(?m)^appVersion: {version}$")
        for folder in ("operator/cluster", "operator/namespaced"):
            self.assertIn(f"image: lockstep:{version}\n", support.kustomized(folder))

    def test_the_jobs_get_the_image_that_was_set(self):
        def image_of(*values):
            found = by_name(support.template(*values))
            container = found[("Deployment", SPACE, "lockstep-operator")]["spec"]["template"]["spec"]["containers"][0]
            return container["image"], container["env"][0]["value"]

        digest = "sha256:" + "0" * 64
        self.assertEqual(image_of("--set=image.repository=r/lockstep,image.tag=v2"), ("r/lockstep:v2", "r/lockstep:v2"))
        self.assertEqual(image_of(f"--set=image.digest={digest},jobs.image.repository=j,jobs.image.tag=v3"),
                         (f"lockstep@{digest}", "j:v3"))

    def test_a_value_that_does_not_exist_or_fits_not_is_refused(self):
        for wrong in ("replica=2", "replicas=two", "image.pullPolicy=Sometimes", "crds.installed=true", "watchNamespace=A_b"):
            result = support.ran("helm", "template", "x", support.CHART, "--kube-version", "1.33", f"--set={wrong}")
            self.assertNotEqual(result.returncode, 0, wrong)
            self.assertIn("values don't meet the specifications", result.stderr)

    def test_the_definition_is_left_out_or_goes_with_the_release_when_told(self):
        crd = ("CustomResourceDefinition", "", "trainingjobs.lockstep.dev")
        self.assertNotIn(crd, by_name(support.template("--set=crds.install=false")))
        self.assertIn("helm.sh/resource-policy: keep", support.template("-s=templates/crd.yaml"))
        self.assertNotIn("helm.sh/resource-policy", support.template("--set=crds.keep=false", "-s=templates/crd.yaml"))

    def test_another_release_has_other_names(self):
        chart = by_name(support.template(release="second", space="other"))
        for kind, _, name in chart:
            if kind not in ("CustomResourceDefinition", "Lease"):  # the Lease is named in the operator
                self.assertIn("second-lockstep", name)

    def test_a_packed_chart_needs_nothing_beside_it(self):
        with tempfile.TemporaryDirectory() as folder:
            support.helm("package", support.CHART, "-d", folder)
            packed = support.helm("template", "lockstep", f"{folder}/lockstep-0.1.0.tgz", "-n", SPACE, "--kube-version", "1.36")
        self.assertEqual(by_name(packed), by_name(support.template()))


class OnApiServerTest(unittest.TestCase):
    def get(self, *words) -> list:
        return json.loads(support.kubectl("get", *words, "-o", "json"))["items"]

    def test_kubectl_applies_the_manifests_and_finds_nothing_to_change_after(self):
        folder = support.ROOT / "manifests/operator/cluster"
        support.kubectl("apply", "--server-side", "--force-conflicts", "-k", folder)
        support.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd/trainingjobs.lockstep.dev")
        support.kubectl("apply", "--server-side", "--dry-run=server", "-k", folder)
        self.assertEqual(support.kubectl("diff", "--server-side", "--force-conflicts", "-k", folder), "")
        space = support.new_space()
        support.kubectl("apply", "-n", space, "-k", support.ROOT / "manifests/network-policy")
        support.kubectl("apply", "--server-side", "-k", support.ROOT / "manifests/operator/namespaced")
        for file in sorted((support.ROOT / "manifests/examples").glob("*.yaml")):
            with self.subTest(file=file.name):
                support.kubectl("apply", "--server-side", "--dry-run=server", "-n", space, "-f", file)

    def test_an_operator_meets_the_restricted_standard(self):
        space = support.new_space()
        support.kubectl("label", "namespace", space, "pod-security.kubernetes.io/warn=restricted")
        result = support.ran("kubectl", "apply", "--server-side", "--dry-run=server", "-f", "-",
                             text=support.template("-s=templates/deployment.yaml", space=space))
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_helm_installs_upgrades_and_uninstalls(self):
        space = support.new_space()
        # The definition may be there from another test, applied by kubectl.
        support.helm("install", "lockstep", support.CHART, "-n", space, "--take-ownership")
        self.assertEqual([d["spec"]["replicas"] for d in self.get("deployments", "-n", space)], [1])
        support.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd/trainingjobs.lockstep.dev")
        support.kubectl("apply", "-n", space, "-f", support.ROOT / "manifests/examples/digits.yaml")

        support.helm("upgrade", "lockstep", support.CHART, "-n", space, "--set=replicas=2", "--take-ownership")
        self.assertEqual([d["spec"]["replicas"] for d in self.get("deployments", "-n", space)], [2])
        self.assertEqual(len(self.get("poddisruptionbudgets", "-n", space)), 1)
        support.helm("rollback", "lockstep", "1", "-n", space)
        self.assertEqual(self.get("poddisruptionbudgets", "-n", space), [])
        self.assertEqual([job["metadata"]["name"] for job in self.get("tjob", "-n", space)], ["digits"])

        support.helm("uninstall", "lockstep", "-n", space)
        kinds = "deployments,networkpolicies,poddisruptionbudgets,roles,rolebindings,secrets,configmaps,services"
        left = self.get(kinds, "-n", space)
        self.assertEqual([item["metadata"]["name"] for item in left if item["kind"] != "ConfigMap"], [])
        self.assertEqual([role["metadata"]["name"] for role in self.get("clusterroles,clusterrolebindings")
                          if role["metadata"]["name"].startswith("lockstep")], [])
        # The definition, and with it the jobs, stay.
        self.assertEqual([job["metadata"]["name"] for job in self.get("tjob", "-n", space)], ["digits"])
        support.helm("install", "lockstep", support.CHART, "-n", space)
        support.helm("uninstall", "lockstep", "-n", space)


if __name__ == "__main__":
    support.main()
