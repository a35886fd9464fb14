#!/usr/bin/env python3
"""Vendor headers stay in the one folder that wraps the library (CONTRIBUTING.md, "Folders")."""

import pathlib
import re
import sys

# What an #include starts with -> the folders that may have it.
RULES = {
    r"<(yaml)\.h": ["launcher/spec"],
    r"<(re2)/": ["launcher/spec"],
    r"<(microhttpd|httplib)\.h": ["launcher/http"],
    r"<(prometheus)/": ["launcher/telemetry"],
    r"<(ncurses)\.h": ["launcher/top"],
    r"<(pmix)\w*\.h": ["launcher/pmix"],
    r"<(CLI)/": ["launcher/cli", "launcher/main.cc"],
    r"[<\"](oneapi/dnnl|dnnl)": ["trainer/backend/cpu", "tests/bench/compute"],
    r"[<\"](gloo)/": ["trainer/collectives/gloo"],
    r"<(libdeflate)\.h": ["launcher/http", "trainer/data"],
    r"<(openssl)/": ["common/contract", "launcher/http"],
    r"<(spdlog)/": ["common"],
    r"[<\"](cuda|cublas|cudnn)\w*\.h": ["trainer/backend/cuda", "trainer/collectives/local"],
    r"[<\"](nccl)\.h": ["trainer/collectives/nccl"],
    r"[<\"](nvml)\.h": ["launcher/placement"],
}
# And of our own: who may include whom.
OWN = {
    "common": ["common"],
    "launcher": ["common", "launcher"],
    "trainer": ["common", "trainer"],
}


def main() -> int:
    root = pathlib.Path(sys.argv[1])
    wrong = []
    seen = 0
    for folder, may_include in OWN.items():
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".h", ".cc", ".cu", ".cuh"):
                continue
            seen += 1
            where = path.relative_to(root).as_posix()
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if not line.startswith("#include"):
                    continue
                include = line.split(None, 1)[1]
                for pattern, folders in RULES.items():
                    if re.match(pattern, include) and not any(where.startswith((f + "/", f)) for f in folders):
                        wrong.append(f"{where}:{number}: {include} belongs in {' or '.join(folders)}")
                own = re.match(r'"(common|launcher|trainer)/', include)
                if own and own.group(1) not in may_include:
                    wrong.append(f"{where}:{number}: {folder} may not know {own.group(1)}")
    print("\n".join(wrong) if wrong else f"{seen} files keep the rules")
    return 1 if wrong or seen < 20 else 0


if __name__ == "__main__":
    sys.exit(main())
