"""Nothing that Spark shows, writes down or sends to tasks has a secret of the options."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.doc_pages import ROOT
from tests.integration.spark.spark_harness import FROM_THE_START, numbered

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(400)]

_DRIVER = Path(__file__).with_name("secrets_driver.py")
_BASIC = "aws.credentials.provider.basic"
_SECRETS = {
    f"{_BASIC}.accesskeyid": "AKIAGREPME00000000ID",
    f"{_BASIC}.secretkey": "grep-me/secret+key",
    f"{_BASIC}.sessiontoken": "grep-me/session+token",
}
# Python imports it at its start; a task has a context when it gets its function and its partition.
_CAPTURE = """\
import os
from pyspark import TaskContext
from pyspark.serializers import CPickleSerializer, CloudPickleSerializer

for kind in (CPickleSerializer, CloudPickleSerializer):
    def loads(self, obj, *arguments, _loads=kind.loads, **more):
        if TaskContext.get() is not None:
            with open(os.path.join(os.environ["CAPTURE"], str(os.getpid())), "ab") as file:
                file.write(obj)
        return _loads(self, obj, *arguments, **more)

    kind.loads = loads
"""


def test_a_query_shows_and_sends_no_secret(local_kinesis: LocalKinesis, tmp_path: Path) -> None:
    local_kinesis.create_stream("flights", 2)
    local_kinesis.put_many("flights", numbered(0, 100))
    output, captured, hooks = (tmp_path / name for name in ("output", "captured", "hooks"))
    for directory in (output, captured, hooks):
        directory.mkdir()
    usual = ROOT / "tests" / "processes" / "sitecustomize.py"
    (hooks / "sitecustomize.py").write_text(usual.read_text() + _CAPTURE)
    options = {**local_kinesis.properties("flights"), **FROM_THE_START, **_SECRETS}
    done = subprocess.run(
        [sys.executable, str(_DRIVER), str(output)],
        input=json.dumps(options).encode(),
        capture_output=True,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(hooks), *sys.path]),
            "CAPTURE": str(captured),
            "KINESIS_PUBLISHERS_LOG": "DEBUG",
        },
    )
    said = done.stderr.decode(errors="replace")
    assert done.returncode == 0, said[-5000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [100, 100, 100]

    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.parent != hooks]
    contents = {str(path.relative_to(tmp_path)): path.read_bytes() for path in files}
    contents |= {"stdout": done.stdout, "stderr": done.stderr}
    # So that it is known to be looked at where secrets would be.
    assert b"micro-batch planned" in contents["stderr"]
    assert b"SparkListenerSQLExecutionStart" in b"".join(contents.values())
    assert b"data_source_read_func" in b"".join(
        text for name, text in contents.items() if "captured" in name
    )
    for name in ("output/explained", "output/pages"):
        assert contents[name]
    leaks = {
        (name, key)
        for name, content in contents.items()
        for key, secret in _SECRETS.items()
        if secret.encode() in content
    }
    assert leaks == set()
