"""The names in docs/production.md and examples/deploy exist: files, extras, options, images."""

from __future__ import annotations

import base64
import configparser
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request
import venv
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import javaproperties
import pyspark
import pytest
import yaml

from kinesis_publishers import Properties
from kinesis_publishers.config.sections.metrics import MetricsConfig
from kinesis_publishers_spark.boundary import LEVEL_VARIABLE
from tests.docs.doc_pages import ROOT, blocks_of
from tests.servers import free_port

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis

_FOLDER = ROOT / "examples" / "deploy"
_DOCKERFILE = (_FOLDER / "Dockerfile").read_text(encoding="utf-8")
_PAGE = ROOT / "docs" / "production.md"
_COMMANDS = "\n".join(
    one.code
    for page in (_PAGE, ROOT / "docs" / "local-kinesis.md")
    for one in blocks_of(page)
    if one.language in {"sh", "text"}
)
_MANIFESTS: list[dict[str, Any]] = [
    manifest
    for path in sorted(_FOLDER.glob("*.yaml"))
    for manifest in yaml.safe_load_all(path.read_text(encoding="utf-8"))
]


LETTERS = "DEAD_LETTER_STREAM"


def named(kind: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in _MANIFESTS if one["kind"] == kind}


def pods() -> list[dict[str, Any]]:
    """Return what the pods of all manifests are made of."""
    deployed = [one["spec"]["template"]["spec"] for one in named("Deployment").values()]
    return deployed + [one["spec"] for one in named("Pod").values()]


def images() -> dict[str, str]:
    """Return the target of the Dockerfile by the image that it is built into."""
    builds = re.findall(r"--target (\S+) --tag (\S+) \.$", _DOCKERFILE, re.MULTILINE)
    return {image: target for target, image in builds}


def stage_of(target: str, text: str = _DOCKERFILE) -> str:
    return text.split(f" AS {target}\n")[1].split("\nFROM")[0]


def entry_point(target: str) -> list[str]:
    (words,) = re.findall(r"^ENTRYPOINT \[(.*)\]$", stage_of(target), re.MULTILINE)
    return [word.strip().strip('"') for word in words.split(",")]


def test_hadolint_has_no_complaint_about_the_dockerfile() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run(
        [linter, _FOLDER / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("text", [_DOCKERFILE, _COMMANDS], ids=["Dockerfile", "production.md"])
def test_every_extra_that_is_installed_is_declared(text: str) -> None:
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(ROOT / "setup.cfg")
    extras = re.findall(r"\.whl\)\[([\w,]+)\]", text)
    assert {one for each in extras for one in each.split(",")} <= set(
        setup["options.extras_require"]
    )
    assert extras


def test_every_file_that_is_copied_or_run_exists() -> None:
    copied = re.findall(r"^COPY (examples/\S+) (/\S+)/$", _DOCKERFILE, re.MULTILINE)
    assert all((ROOT / path).is_file() for path, _ in copied)
    in_image = {f"{folder}/{Path(path).name}" for path, folder in copied}
    assert entry_point("worker")[1] in in_image
    assert set(re.findall(r"local://(\S+)", _COMMANDS)) <= in_image
    on_page = re.findall(r"examples/deploy[/\w.-]*", _PAGE.read_text(encoding="utf-8"))
    assert all((ROOT / path).exists() for path in on_page)


def test_every_image_and_account_that_is_named_is_made_here() -> None:
    used = {container["image"] for pod in pods() for container in pod["containers"]}
    used |= set(re.findall(r"(?:container\.image=|docker run .* )(\S+/\S+:\d+)", _COMMANDS))
    built = set(re.findall(r"--target \S+ --tag (\S+) \.$", _COMMANDS, re.MULTILINE))
    assert used == built == set(images())
    accounts = {pod["serviceAccountName"] for pod in pods() if "serviceAccountName" in pod}
    accounts |= set(re.findall(r"serviceAccountName=(\S+)", _COMMANDS))
    assert accounts == set(named("ServiceAccount"))
    claims = set(re.findall(r"claimName=(\S+)", _COMMANDS))
    assert claims == set(named("PersistentVolumeClaim"))


def test_the_properties_of_the_manifests_are_accepted_and_mounted() -> None:
    maps = named("ConfigMap")
    for name, manifest in maps.items():
        for text in manifest["data"].values():
            pairs = javaproperties.loads(text)
            # The options of leases are an error in Spark, and those of Spark elsewhere.
            assert Properties.parse(pairs, complete=True), name
    for pod in pods():
        (volume,) = pod["volumes"]
        (container,) = pod["containers"]
        (mount,) = container["volumeMounts"]
        assert mount["name"] == volume["name"]
        (file,) = maps[volume["configMap"]["name"]]["data"]
        path = f"{mount['mountPath']}/{file}"
        assert path in container.get("args", []) or path in _COMMANDS
        assert {one["name"] for one in container.get("env", [])} <= {
            LEVEL_VARIABLE,
            LETTERS,
        }


def test_the_deployment_fits_its_budget_and_its_port() -> None:
    ((name, deployment),) = named("Deployment").items()
    labels = deployment["spec"]["selector"]["matchLabels"]
    assert deployment["spec"]["template"]["metadata"]["labels"] == labels
    assert named("PodDisruptionBudget")[name]["spec"]["selector"]["matchLabels"] == labels
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    text = named("ConfigMap")[name]["data"]["orders.properties"]
    properties = Properties.parse(javaproperties.loads(text))
    (port,) = container["ports"]
    assert port["containerPort"] == properties.get(MetricsConfig.prometheus_port)
    annotations = deployment["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(port["containerPort"])
    probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness")]
    assert {(one["path"], one["port"]) for one in probes} == {
        (annotations["prometheus.io/path"], port["name"])
    }


def test_every_setting_of_spark_that_is_named_is_spark_s() -> None:
    settings = set(re.findall(r"--conf (spark\.[\w.]+)=", _COMMANDS))
    own = {one for one in settings if not one.startswith("spark.emr-serverless.")}
    jars = Path(pyspark.__file__).parent / "jars"
    classes = b"".join(
        archive.read(name)
        for pattern in ("spark-kubernetes_*.jar", "spark-core_*.jar")
        for path in jars.glob(pattern)
        for archive in [zipfile.ZipFile(path)]
        for name in archive.namelist()
        if re.search(
            r"/config/package\$\.class$|/k8s/(Config|Constants)\$\.class$|/SparkConf", name
        )
    )
    for setting in own:
        # Volumes have a name in the middle, variables of the environment at the end.
        volume = re.fullmatch(r"(.*\.volumes\.)(persistentVolumeClaim)\.\w+\.(.*)", setting)
        parts = volume.groups() if volume else [re.sub(r"(executorEnv\.).*", r"\1", setting)]
        # Scala composes some settings of a prefix and the last word.
        for part in parts:
            prefix, _, last = part.rpartition(".")
            assert part.encode() in classes or (
                prefix.encode() in classes and f".{last}".encode() in classes
            ), setting
    assert len(own) > 8


def test_every_option_of_spark_submit_that_is_named_exists() -> None:
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-launcher_*.jar")
    with zipfile.ZipFile(jar) as archive:
        known = archive.read("org/apache/spark/launcher/SparkSubmitOptionParser.class")
    submits = re.findall(
        r"^(?:spark-submit|start-connect-server\.sh) (.*)$", joined(), re.MULTILINE
    )
    options = {word for line in submits for word in shlex.split(line) if word.startswith("--")}
    assert {"--archives", "--master", "--conf"} <= options
    assert all(option.encode() in known for option in options)


def joined() -> str:
    return _COMMANDS.replace("\\\n", " ")


def test_the_worker_puts_aside_answers_its_probes_and_ends_when_its_pod_ends(
    local_kinesis: LocalKinesis, tmp_path: Path
) -> None:
    local_kinesis.create_stream("orders", 2)
    local_kinesis.create_stream("letters")
    local_kinesis.put_many("orders", [("key", b"no JSON"), ("key", b'{"id": 7}')])
    (container,) = named("Deployment")["orders-worker"]["spec"]["template"]["spec"]["containers"]
    port = free_port()
    (text,) = named("ConfigMap")["orders-worker"]["data"].values()
    properties = javaproperties.loads(text) | local_kinesis.properties("orders")
    properties["kinesis.checkpoint.store"] = "sqlite"
    properties["kinesis.checkpoint.sqlite.path"] = str(tmp_path / "checkpoints")
    properties["kinesis.metrics.prometheus.host"] = "127.0.0.1"
    properties["kinesis.metrics.prometheus.port"] = str(port)
    path = tmp_path / "orders.properties"
    path.write_text("".join(f"{key} = {value}\n" for key, value in properties.items()))

    program = _FOLDER / Path(entry_point("worker")[1]).name
    with subprocess.Popen(
        [sys.executable, program, path],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {LETTERS: "letters"},
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "key: {'id': 7}\n"
        probe = container["livenessProbe"]["httpGet"]["path"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{probe}") as response:
            assert b"kinesis_publishers_" in response.read()
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    (letters,) = local_kinesis.records("letters").values()
    assert [base64.b64decode(json.loads(one.data)["data"]) for one in letters] == [b"no JSON"]


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_the_image_of_the_local_server_installs_and_serves(tmp_path: Path) -> None:
    """Its commands as they are written, in a fresh environment in place of a container."""
    left_out = shutil.ignore_patterns(".*", "tests", "docs", "benchmarks", "*.egg-info", "build")
    shutil.copytree(ROOT, tmp_path / "checkout", ignore=left_out)
    venv.create(tmp_path / "venv", with_pip=True)
    path = os.pathsep.join([str(tmp_path / "venv" / "bin"), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": ""}
    text = _DOCKERFILE.replace("\\\n", "").replace("--no-cache-dir", "")
    for target in ("wheel", "local"):
        (command,) = re.findall(r"^RUN (.*)$", stage_of(target, text), re.MULTILINE)
        moved = re.sub(r"(?<![\w.}])/(checkout|wheels)", rf"{tmp_path}/\1", command)
        subprocess.run(["bash", "-ceo", "pipefail", moved], env=environment, check=True)
    command = [*entry_point("local"), "--port", "0"]
    program = tmp_path / "venv" / "bin" / command[0]
    with subprocess.Popen(
        [program, *command[1:]], env=environment, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        (port,) = re.findall(r":(\d+),", server.stdout.readline())
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/_admin/state") as answer:
            assert b'"demo"' in answer.read()
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    assert re.search(r"^USER [1-9]", stage_of("local"), re.MULTILINE)
