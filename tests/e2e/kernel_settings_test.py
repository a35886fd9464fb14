"""What kubelets change of this machine is as before once the last cluster is down, in whatever order they end."""

import pathlib
import tempfile
import unittest

import fixture  # noqa: F401  (says where the others are)
from kernel_settings import SETTINGS, KernelSettings


class KernelSettingsTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.system = self.folder / "sys"
        self.set("0")

    def set(self, value: str) -> None:
        for name in SETTINGS:
            (self.system / name).parent.mkdir(parents=True, exist_ok=True)
            (self.system / name).write_text(value)

    def values(self) -> set:
        return {(self.system / name).read_text() for name in SETTINGS}

    def cluster(self, name: str) -> tuple:
        """Its settings, and the path that says that it is there."""
        path = self.folder / name
        path.touch()
        return KernelSettings(path, self.folder / "shared", self.system), path

    def test_the_last_of_two_clusters_restores_them(self):
        (first, _), (second, _) = self.cluster("first"), self.cluster("second")
        first.keep()
        self.set("1")
        second.keep()
        first.restore()
        self.assertEqual(self.values(), {"1"})
        second.restore()
        self.assertEqual(self.values(), {"0"})

    def test_a_cluster_that_is_gone_without_a_word_is_not_waited_for(self):
        (killed, path), (other, _) = self.cluster("killed"), self.cluster("other")
        killed.keep()
        self.set("1")
        path.unlink()
        other.keep()
        other.restore()
        self.assertEqual(self.values(), {"0"})

    def test_what_was_set_between_two_clusters_is_kept(self):
        for value in ("0", "2"):
            self.set(value)
            cluster, _ = self.cluster("again")
            cluster.keep()
            self.set("1")
            cluster.restore()
            self.assertEqual(self.values(), {value})


if __name__ == "__main__":
    unittest.main()
