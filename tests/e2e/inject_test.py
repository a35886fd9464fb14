"""A program in an image that has no launcher: the operator puts it there."""

import pathlib
import tempfile
import unittest

import bare_roots
import fixture
import image
from job_test_case import JobTestCase

PLAIN_IMAGE = "lockstep.dev/plain:e2e"


class InjectTest(JobTestCase):
    def give_image(self) -> None:
        """PLAIN_IMAGE has one program and no library."""
        with tempfile.TemporaryDirectory() as folder:
            rootfs, archive = pathlib.Path(folder) / "rootfs", pathlib.Path(folder) / "image.tar"
            bare_roots.nothing(rootfs)
            image.make_archive(archive, rootfs, PLAIN_IMAGE, [])
            for node in range(fixture.NODES):
                self.nodes.load(node, archive)

    def apply_job(self, name: str, **spec) -> None:
        self.api.create(fixture.PATHS["trainingjob"].format(self.namespace), {
            "apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": {
                "replicas": 2, "processesPerReplica": 1, "devices": {"type": "CPU"}, "program": {"command": ["rank"]}, **spec,
                "template": {"spec": {"containers": [
                    {"name": "lockstep", "image": PLAIN_IMAGE, "imagePullPolicy": "Never"}]}}}})

    def test_an_image_without_a_c_library_gets_the_launcher(self):
        self.give_image()
        self.apply_job("plain", launcher={"inject": True})
        self.wait_for_phase("plain", "Succeeded")
        for index, pod in enumerate(self.pods("plain")):
            said = self.kubectl("logs", pod["metadata"]["name"], "--container=lockstep")
            # In it nothing of the launcher's reaches the program, which would say so.
            self.assertEqual([line for line in said.splitlines() if line.startswith("[rank")], [f"[rank {index}] rank {index} of 2"])

    def test_without_it_such_a_job_says_what_is_missing(self):
        self.give_image()
        self.apply_job("bare", runPolicy={"maxRestarts": 0})
        status = self.wait_until(lambda: (s := self.status("bare")).get("phase") == "Failed" and s, "it has failed")
        self.assertRegex(status["lastFailure"]["message"], '"lockstep": executable file not found')


if __name__ == "__main__":
    unittest.main()
