"""What can be known of containers/ without a container daemon: that the Containerfiles name what is there, end as a user
without rights, and call containers/image.py and ./dev as these are."""

import pathlib
import re
import shlex
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "containers"))

import image  # noqa: E402

INSTRUCTIONS = ("ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "ENTRYPOINT")


def instructions(text: str) -> list:
    """(instruction, rest) of each, with continued lines joined and comments left out."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [tuple(line.strip().split(maxsplit=1)) for line in joined.splitlines() if line.strip()]


class Stage:
    """What one FROM and the instructions after it come to."""

    def __init__(self, base: str, name: str):
        self.base, self.name = base, name
        self.environment, self.user, self.entrypoint, self.copies, self.commands = {}, None, None, [], []


def stages(text: str) -> list:
    found, arguments = [], set()
    for instruction, rest in instructions(text):
        if instruction not in INSTRUCTIONS:
            raise AssertionError(f"{instruction}: not an instruction that is used here")
        if instruction == "FROM":
            words = rest.split()
            found.append(Stage(words[0], words[2] if len(words) == 3 else ""))
        elif instruction == "ARG":
            arguments.add(rest.partition("=")[0])
        elif instruction == "ENV":
            found[-1].environment.update(word.split("=", 1) for word in shlex.split(rest))
        elif instruction == "USER":
            found[-1].user = rest
        elif instruction == "ENTRYPOINT":
            found[-1].entrypoint = rest
        elif instruction == "COPY":
            found[-1].copies.append(rest.split())
        elif instruction == "RUN":
            found[-1].commands += [shlex.split(command) for command in rest.split("&&")]
        for name in re.findall(r"\$\{?([A-Z_]+)", rest):
            if name not in arguments and name not in ("PATH",):
                raise AssertionError(f"${name} is used and never declared")
    return found


class ContainerfilesTest(unittest.TestCase):
    def files(self):
        found = sorted((ROOT / "containers").glob("*.Containerfile"))
        self.assertEqual([file.name for file in found],
                         ["cpu.Containerfile", "cuda.Containerfile", "with-launcher.Containerfile"])
        for file in found:
            with self.subTest(file=file.name):
                yield stages(file.read_text())

    def test_end_as_the_user_of_the_operators_pods(self):
        for found in self.files():
            self.assertEqual(found[-1].user, f"{image.USER}:{image.USER}")
            self.assertRegex(found[-1].entrypoint or "[]", r"^\[.*\]$")  # no shell between the two

    def test_bases_are_named_by_version(self):
        for found in self.files():
            for stage in found:
                self.assertTrue(stage.base in ("scratch", "${BASE}") or re.search(r":[0-9]", stage.base), stage.base)
            # What it is compiled on: the libraries are taken from there.
            self.assertEqual(found[0].base, "debian:12-slim")

    def test_copy_only_what_was_made(self):
        for found in self.files():
            made = {stage.name: [word for command in stage.commands for word in command] for stage in found}
            for stage in found:
                for words in stage.copies:
                    if words[0].startswith("--from="):
                        self.assertIn(words[1], made[words[0].removeprefix("--from=")])
                    else:
                        self.assertTrue((ROOT / words[0]).exists(), words)

    def test_call_programs_as_they_are(self):
        presets = (ROOT / "CMakePresets.json").read_text()
        commands = re.findall(r"^(?:\[?)([a-z][a-z0-9-]*)(?: \| [a-z-]+)*\)", (ROOT / "dev").read_text(), re.MULTILINE)
        for found in self.files():
            for command in found[0].commands:
                if command[0] == "./dev":
                    self.assertIn(command[1], commands)
                if command[:2] == ["python3", "containers/image.py"]:
                    words = [word for word in command[2:] if not word.startswith("$")]
                    arguments = image.command_line().parse_args(words)
                    self.assertRegex(str(arguments.bin), r"^build/[a-z]+/bin$")
                    self.assertIn(f'"name": "{arguments.bin.parts[1]}"', presets)

    def test_the_launcher_is_found_in_the_image(self):
        for found in self.files():
            last = found[-1]
            folder = "/opt/lockstep/bin" if last.base == "${BASE}" else "/usr/bin"
            self.assertIn(folder, last.environment["PATH"].split(":"))

    def test_what_is_built_here_is_no_part_of_the_context(self):
        ignored = (ROOT / ".containerignore").read_text().split()
        self.assertIn("build", ignored)
        self.assertEqual((ROOT / ".dockerignore").read_text().split(), ignored)

    @unittest.skipUnless((ROOT / "build/cuda/bin/liblockstep-cuda.so").exists()
                         and (ROOT / "build/cuda-toolkit/complete").exists(), "no build of the preset cuda")
    def test_the_cuda_library_finds_all_that_it_loads_in_its_image(self):
        binaries = ROOT / "build/cuda/bin"
        plugin = binaries / "liblockstep-cuda.so"
        wheels = {library.name: image.wheel_of(library) for library in
                  {*image.libraries(plugin), *image.opened_by_plugin(binaries)}}
        for name in ("libcudart.so.13", "libcublasLt.so.13", "libnccl.so.2", "libcudnn.so.9", "libcudnn_cnn.so.9"):
            # Its licence is known, or image.py says that the library is of nobody's.
            self.assertTrue(list(wheels[name].glob("licenses/*")), name)


if __name__ == "__main__":
    unittest.main()
