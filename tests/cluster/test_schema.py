"""Every rule and bound of the CRDs: it refuses what it should in the words that it promises, and takes the neighbour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.client import jobs, models
from tests.cluster.objects import DIGEST, LATER, a_batch, a_job, a_model

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.client import Answer, Raw
    from tests.cluster.conftest import Cluster

FILES: Raw = {"input": {"uri": "pvc://data/in.npy"}, "output": {"uri": "pvc://data/out"}}
BOTH = "a job either has an input (batch) or serves: set input or serve, not both"
BY_SECRET: Raw = {"secretRef": {"name": "models"}}
BY_ROLE: Raw = {"awsRoleArn": "arn:aws:iam::123456789012:role/models-reader"}
NO_INPUT = "output is for batch jobs: set input too, or leave output out"
NO_OUTPUT = "a batch job with input.uri needs output.uri to write its answers to"
NO_VERSION = "modelVersion picks a version of an InferenceModel; a model given as a URI has none"
NO_DIGEST = "a model fetched over the network needs modelDigest (sha256:HEX), so that what runs is what you meant"
BAD_MODEL = (
    "must be an InferenceModel's name (its version goes into modelVersion), "
    "or a URI (pvc://, s3://, gs://, hf://, oci://, https://, http://, file:///) without '..'"
)
BAD_INPUT = "must start with pvc://CLAIM/PATH, s3://BUCKET/KEY, gs://BUCKET/KEY, hf://ORG/REPO, https://, http:// or file:///"
BAD_OUTPUT = "must start with pvc://CLAIM/PATH, s3://BUCKET/FOLDER or gs://BUCKET/FOLDER"
IN_BUCKETS: Raw = {"input": {"uri": "s3://rows/x.npy"}, "output": {"uri": "s3://answers/y"}}
BAD_MODEL_SCHEME = "must start with pvc://CLAIM/PATH, s3://BUCKET/KEY, gs://BUCKET/KEY, hf://ORG/REPO, oci://REGISTRY/REPO, https://, http:// or file:///"
NO_STORE = "storage is for s3://, gs://, hf:// and oci://"
CLIMBS = "must not contain '..': name the path from the volume's root"
ONE_OF = "set exactly one of uri and data"
INPUT_DIGEST = "an http(s) input needs its sha256 digest"
SLACK_TARGET = "slack needs latencyTargetMilliseconds, which says when a request is late"
SLACK_CONTROL = "slack is not for services whose callers may unload the model: leave out slack, or set modelControl to None"
AUTHENTICATION_TLS = "authentication needs tls: set tls too, {} for the operator's certificate"
AUTHENTICATION_WAYS = "set clientCertificates, jwt, or both: either lets a caller in"
BY_CERTIFICATE = {"clientCertificates": {"caSecretName": "callers"}}
QUEUE_OF_A_RUN = "the batch runs, so its queueName can't change: suspend it first, or create another job"
QUEUE_OF_A_SERVICE = "queueName is for batch jobs: set input too, or leave queueName out; the quota of services is namespaceLimits"
MAX_MIN = "maxReplicas must not be below minReplicas"
FOR_SERVING = "autoscaling is for serving jobs"

A_KEY = {"name": "s", "key": "k"}

Case = tuple[str, dict[str, Any], str, dict[str, Any]]


def tolerations(count: int) -> list[Raw]:
    return [{"key": f"k{n}", "operator": "Exists"} for n in range(count)]


def variables(count: int) -> list[Raw]:
    return [{"name": f"V{n}"} for n in range(count)]


# What it is about, a spec that is refused, the words, and the nearest spec that is taken.
JOBS: list[Case] = [
    ("input and serve", {"input": {"data": "{}"}, "serve": {}}, BOTH, {"serve": {}}),
    ("output without input", {"output": FILES["output"]}, NO_INPUT, FILES),
    ("input.uri without output", {"input": FILES["input"]}, NO_OUTPUT, {"input": {"data": "{}"}}),
    (
        "modelVersion with a URI",
        {"model": "pvc://data/m.onnx", "modelVersion": "1"},
        NO_VERSION,
        {"model": "digits", "modelVersion": "1"},
    ),
    ("http model", {"model": "http://host/m.onnx"}, NO_DIGEST, {"model": "http://host/m.onnx", "modelDigest": DIGEST}),
    ("s3 model", {"model": "s3://models/m.onnx"}, NO_DIGEST, {"model": "s3://models/m.onnx", "modelDigest": DIGEST}),
    ("https model", {"model": "https://host/m.onnx"}, NO_DIGEST, {"model": "https://host/m.onnx", "modelDigest": DIGEST}),
    ("scheme of a model", {"model": "ftp://host/m.onnx"}, BAD_MODEL, {"model": "file:///models/m.onnx"}),
    ("model in upper case", {"model": "Lanes"}, BAD_MODEL, {"model": "lanes.v2"}),
    ("blank in a model", {"model": "pvc://data/my model.onnx"}, BAD_MODEL, {"model": "pvc://data/my-model.onnx"}),
    ("model that climbs", {"model": "pvc://data/../m.onnx"}, BAD_MODEL, {"model": "pvc://data/..m.onnx"}),
    ("model that ends in ..", {"model": "pvc://data/.."}, BAD_MODEL, {"model": "pvc://data/m.."}),
    ("empty model", {"model": ""}, "should be at least 1 chars long", {"model": "m"}),
    ("no model", {"model": None}, "Required value", {"model": "m"}),
    ("long model", {"model": "m" * 2049}, "Too long: may not be more than 2048", {"model": "m" * 2048}),
    ("digest too short", {"modelDigest": "sha256:abc"}, "should match '^sha256:[0-9a-f]{64}$'", {"modelDigest": DIGEST}),
    ("digest in upper case", {"modelDigest": DIGEST.upper()}, "should match '^sha256:", {"modelDigest": DIGEST}),
    ("digest of another kind", {"modelDigest": "sha512:" + "a" * 64}, "should match '^sha256:", {"modelDigest": DIGEST}),
    ("accelerator", {"accelerator": "nvidia.com/gpu"}, "should match '^[a-z0-9]", {"accelerator": "mig-1g"}),
    ("long accelerator", {"accelerator": "a" * 64}, "Too long: may not be more than 63", {"accelerator": "a" * 63}),
    ("empty accelerator", {"accelerator": ""}, "should be at least 1 chars long", {"accelerator": "auto"}),
    ("backend", {"backend": "tensorrt"}, 'supported values: "auto", "onnx", "triton", "torchscript"', {"backend": "onnx"}),
    (
        "sharedMemory",
        {"serve": {"sharedMemory": "Cuda"}},
        'supported values: "None", "System"',
        {"serve": {"sharedMemory": "System"}},
    ),
    ("secretName", {"serve": {"tls": {"secretName": "a/b"}}}, "should match '^[a-z0-9]", {"serve": {"tls": {"secretName": "a"}}}),
    ("deadlinePolicy", {"deadlinePolicy": "Hard"}, 'supported values: "Soft", "Firm"', {"deadlinePolicy": "Firm"}),
    ("deadline as a date", {"deadline": "2026-04-02"}, "must be of type date-time", {"deadline": "2026-04-02T00:00:00Z"}),
    ("deadline without offset", {"deadline": "2026-04-02T12:00:00"}, "must be of type date-time", {"deadline": LATER}),
    ("deadline in words", {"deadline": "tomorrow"}, "must be of type date-time", {"deadline": "2026-04-02T12:00:00+02:00"}),
    ("deadline on no day", {"deadline": "2026-02-30T12:00:00Z"}, "must be of type date-time", {"deadline": "2028-02-29T12:00:00Z"}),
    ("queueName of a service", {"queueName": "team"}, QUEUE_OF_A_SERVICE, {"queueName": "team", **FILES}),
    ("queueName in upper case", {"queueName": "Team", **FILES}, "should match '^[a-z0-9]", {"queueName": "team.a", **FILES}),
    ("long queueName", {"queueName": "q" * 254, **FILES}, "Too long: may not be more than 253", {"queueName": "q" * 253, **FILES}),
    ("priority below", {"priority": -1}, "should be greater than or equal to 0", {"priority": 0}),
    ("priority above", {"priority": 1001}, "should be less than or equal to 1000", {"priority": 1000}),
    ("priority as text", {"priority": "high"}, 'must be of type integer: "string"', {"priority": 7}),
    ("priority as a float", {"priority": 1.5}, "must be of type integer", {"priority": 1}),
    ("batchSize 0", {"batchSize": 0}, "should be greater than or equal to 1", {"batchSize": 1}),
    ("batchSize above", {"batchSize": 65537}, "should be less than or equal to 65536", {"batchSize": 65536}),
    ("maxAttempts 0", {"maxAttempts": 0}, "should be greater than or equal to 1", {"maxAttempts": 1}),
    ("maxAttempts above", {"maxAttempts": 101}, "should be less than or equal to 100", {"maxAttempts": 100}),
    ("replicas below", {"replicas": -1}, "should be greater than or equal to 0", {"replicas": 0}),
    ("replicas above", {"replicas": 1001}, "should be less than or equal to 1000", {"replicas": 1000}),
    ("ttl below", {"ttlSecondsAfterFinished": -1}, "greater than or equal to 0", {"ttlSecondsAfterFinished": 0}),
    ("ttl above", {"ttlSecondsAfterFinished": 31_536_001}, "less than or equal to", {"ttlSecondsAfterFinished": 31_536_000}),
    (
        "maxReplicas under minReplicas",
        {"serve": {"minReplicas": 3, "maxReplicas": 2}},
        MAX_MIN,
        {"serve": {"minReplicas": 2, "maxReplicas": 2}},
    ),
    (
        "slack without a target",
        {"serve": {"slack": {}}},
        SLACK_TARGET,
        {"serve": {"slack": {"claims": ["data"]}, "latencyTargetMilliseconds": 50}},
    ),
    (
        "slack of a model that callers unload",
        {"serve": {"slack": {}, "latencyTargetMilliseconds": 50, "modelControl": "Explicit"}},
        SLACK_CONTROL,
        {"serve": {"slack": {}, "latencyTargetMilliseconds": 50, "modelControl": "None"}},
    ),
    (
        "authentication without TLS",
        {"serve": {"authentication": BY_CERTIFICATE}},
        AUTHENTICATION_TLS,
        {"serve": {"authentication": BY_CERTIFICATE, "tls": {}}},
    ),
    (
        "authentication by nothing",
        {"serve": {"authentication": {}, "tls": {}}},
        AUTHENTICATION_WAYS,
        {"serve": {"authentication": BY_CERTIFICATE, "tls": {}}},
    ),
    (
        "a service that keeps a worker and sleeps",
        {"serve": {"minReplicas": 1, "gateway": {"idleSeconds": 60}}},
        "gateway.idleSeconds needs minReplicas 0",
        {"serve": {"minReplicas": 0, "gateway": {"idleSeconds": 60}}},
    ),
    (
        "frames that are kept longer than answers",
        {"serve": {"cache": {"maxAgeSeconds": 5, "frames": {"maxAgeSeconds": 6}}}},
        "frames.maxAgeSeconds must not be above cache.maxAgeSeconds: lower it, or raise the other",
        {"serve": {"cache": {"maxAgeSeconds": 6, "frames": {"maxAgeSeconds": 6}}}},
    ),
    (
        "similarity above",
        {"serve": {"cache": {"frames": {"similarity": 1.01}}}},
        "less than or equal to 1",
        {"serve": {"cache": {"frames": {"similarity": 0.9}}}},
    ),
    (
        "maxBytes of a cache",
        {"serve": {"cache": {"maxBytes": 1000}}},
        "greater than or equal to 1048576",
        {"serve": {"cache": {"maxBytes": 1048576}}},
    ),
    ("maxReplicas 0", {"serve": {"minReplicas": 0, "maxReplicas": 0}}, "greater than or equal to 1", {"serve": {"minReplicas": 0}}),
    ("minReplicas above", {"serve": {"minReplicas": 1001}}, "less than or equal to 1000", {"serve": {"minReplicas": 1000}}),
    (
        "latency target 0",
        {"serve": {"latencyTargetMilliseconds": 0}},
        "greater than or equal to 1",
        {"serve": {"latencyTargetMilliseconds": 1}},
    ),
    ("until in words", {"serve": {"until": "noon"}}, "must be of type date-time", {"serve": {"until": LATER}}),
    ("autoscaling of a batch", {**FILES, "autoscaling": {"mode": "HPA"}}, FOR_SERVING, {**FILES, "autoscaling": {"mode": "None"}}),
    (
        "mode of autoscaling",
        {"autoscaling": {"mode": "Magic"}},
        'supported values: "None", "HPA", "External"',
        {"autoscaling": {"mode": "HPA"}},
    ),
    ("input of neither kind", {"input": {}, "output": FILES["output"]}, ONE_OF, FILES),
    ("input of both kinds", {**FILES, "input": {"uri": "pvc://d/i", "data": "{}"}}, ONE_OF, {"input": {"data": "{}"}}),
    (
        "http input",
        {**FILES, "input": {"uri": "https://h/i.npy"}},
        INPUT_DIGEST,
        {**FILES, "input": {"uri": "https://h/i.npy", "digest": DIGEST}},
    ),
    ("scheme of an input", {**FILES, "input": {"uri": "azure://b/i"}}, BAD_INPUT, IN_BUCKETS),
    ("input that climbs", {**FILES, "input": {"uri": "pvc://d/a/../../b"}}, CLIMBS, {**FILES, "input": {"uri": "pvc://d/a/...b"}}),
    ("claim that climbs", {**FILES, "input": {"uri": "pvc://../b"}}, CLIMBS, FILES),
    ("output that climbs", {**FILES, "output": {"uri": "pvc://d/.."}}, CLIMBS, FILES),
    ("relative output", {**FILES, "output": {"uri": "/mnt/out"}}, BAD_OUTPUT, FILES),
    ("scheme of an output", {**FILES, "output": {"uri": "hf://org/rows/out"}}, BAD_OUTPUT, IN_BUCKETS),
    (
        "storage of an input on a volume",
        {**FILES, "input": {**FILES["input"], "storage": BY_SECRET}},
        "storage of an input is for s3://, gs:// and hf://",
        {**FILES, "input": {"uri": "hf://org/rows/x.npy", "storage": BY_SECRET}},
    ),
    (
        "role of an input on a hub",
        {**FILES, "input": {"uri": "hf://org/rows/x.npy", "storage": BY_ROLE}},
        "storage.awsRoleArn is for s3://",
        {**FILES, "input": {"uri": "s3://rows/x.npy", "storage": BY_ROLE}},
    ),
    (
        "storage of an output on a volume",
        {**FILES, "output": {**FILES["output"], "storage": BY_SECRET}},
        "storage of an output is for s3:// and gs://",
        {**FILES, "output": {"uri": "s3://answers/y", "storage": {**BY_SECRET, **BY_ROLE}}},
    ),
    (
        "role of an output in Cloud Storage",
        {**FILES, "output": {"uri": "gs://answers/y", "storage": BY_ROLE}},
        "storage.awsRoleArn is for s3://",
        {"input": {"uri": "gs://rows/x.npy", "storage": BY_SECRET}, "output": {"uri": "gs://answers/y", "storage": BY_SECRET}},
    ),
    ("output without uri", {**FILES, "output": {}}, "output.uri: Required value", FILES),
    (
        "long input uri",
        {**FILES, "input": {"uri": "pvc://d/" + "i" * 2041}},
        "Too long",
        {**FILES, "input": {"uri": "pvc://d/" + "i" * 2040}},
    ),
    ("empty data", {"input": {"data": ""}}, "should be at least 1 chars long", {"input": {"data": "{}"}}),
    ("much data", {"input": {"data": "x" * 65537}}, "Too long: may not be more than 65536", {"input": {"data": "x" * 65536}}),
    (
        "format of an input",
        {"input": {"data": "{}", "format": "parquet"}},
        "supported values",
        {"input": {"data": "x\n1\n", "format": "csv"}},
    ),
    (
        "items 0",
        {**FILES, "input": {"uri": "pvc://d/i", "items": 0}},
        "greater than or equal to 1",
        {**FILES, "input": {"uri": "pvc://d/i", "items": 1}},
    ),
    (
        "items beyond a double",
        {**FILES, "input": {"uri": "pvc://d/i", "items": 2**53 + 1}},
        "less than or equal to",
        {**FILES, "input": {"uri": "pvc://d/i", "items": 2**53}},
    ),
    ("quantity", {"resources": {"requests": {"cpu": "much"}}}, "should match", {"resources": {"requests": {"cpu": "500m"}}}),
    ("negative quantity", {"resources": {"limits": {"cpu": "-1"}}}, "should match", {"resources": {"limits": {"cpu": "0.5"}}}),
    (
        "negative number",
        {"resources": {"limits": {"cpu": -1}}},
        "greater than or equal to 0",
        {"resources": {"limits": {"cpu": 1}}},
    ),
    ("fraction below zero", {"resources": {"limits": {"cpu": -0.5}}}, "greater than or", {"resources": {"limits": {"cpu": 0.5}}}),
    ("quantity as a truth", {"resources": {"limits": {"cpu": True}}}, "not validate", {"resources": {"limits": {"cpu": "1e3"}}}),
    ("quantity as a map", {"resources": {"limits": {"cpu": {"a": 1}}}}, "at most 0", {"resources": {"limits": {"memory": "1E"}}}),
    (
        "exponent without a number",
        {"resources": {"limits": {"cpu": "1e"}}},
        "should match",
        {"resources": {"limits": {"cpu": "+.5"}}},
    ),
    (
        "many requests",
        {"resources": {"requests": {f"r{n}": "1" for n in range(9)}}},
        "must have at most 8",
        {"resources": {"requests": {f"r{n}": "1" for n in range(8)}}},
    ),
    (
        "node label value",
        {"nodeSelector": {"zone": "z" * 64}},
        "Too long: may not be more than 63",
        {"nodeSelector": {"zone": "z" * 63}},
    ),
    (
        "many node labels",
        {"nodeSelector": {f"l{n}": "v" for n in range(33)}},
        "must have at most 32",
        {"nodeSelector": {f"l{n}": "v" for n in range(32)}},
    ),
    ("many tolerations", {"tolerations": tolerations(33)}, "must have at most 32 items", {"tolerations": tolerations(32)}),
    (
        "operator of a toleration",
        {"tolerations": [{"key": "k", "operator": "In"}]},
        "should match '^(Exists|Equal)$'",
        {"tolerations": tolerations(1)},
    ),
    (
        "effect of a toleration",
        {"tolerations": [{"key": "k", "effect": "NoFun"}]},
        "should match",
        {"tolerations": [{"key": "k", "effect": "NoExecute"}]},
    ),
    (
        "toleration for everything",
        {"tolerations": [{"operator": "Exists"}]},
        "name the taint by its key: a toleration without one tolerates every taint",
        {"tolerations": tolerations(1)},
    ),
    (
        "value that a toleration doesn't compare",
        {"tolerations": [{"key": "k", "operator": "Exists", "value": "v"}]},
        "value goes with operator: Equal; leave it out for Exists",
        {"tolerations": [{"key": "k", "operator": "Equal", "value": "v"}, {"key": "k", "value": "v"}]},
    ),
    (
        "variable that the loader obeys",
        {"template": {"env": [{"name": "LD_PRELOAD"}]}},
        "is reserved: the loader, Python or a runtime obeys it before the worker has verified anything",
        {"template": {"env": [{"name": "PRELOAD"}]}},
    ),
    (
        "variable that Python obeys",
        {"template": {"env": [{"name": "PYTHONWARNINGS"}]}},
        "is reserved: the loader, Python or a runtime obeys it before the worker has verified anything",
        {"template": {"env": [{"name": "APP_PYTHONWARNINGS"}]}},
    ),
    (
        "variable of the worker's own",
        {"template": {"env": [{"name": "INFERENCE_CACHE_DIRECTORY"}]}},
        "is reserved: the loader, Python or a runtime obeys it before the worker has verified anything",
        {"template": {"env": [{"name": "APP_CACHE_DIRECTORY"}]}},
    ),
    (
        "value and source of a variable",
        {"template": {"env": [{"name": "A", "value": "x", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]}},
        "set value or valueFrom, not both",
        {"template": {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]}},
    ),
    (
        "two sources of a variable",
        {"template": {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}, "secretKeyRef": A_KEY}}]}},
        "set exactly one of secretKeyRef, configMapKeyRef and fieldRef",
        {"template": {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}},
    ),
    (
        "variables of no object",
        {"template": {"envFrom": [{"prefix": "APP_"}]}},
        "set exactly one of configMapRef and secretRef",
        {"template": {"envFrom": [{"prefix": "APP_", "configMapRef": {"name": "c"}}]}},
    ),
    (
        "volume of two kinds",
        {"template": {"volumes": [{"name": "v", "emptyDir": {}, "configMap": {"name": "c"}}]}},
        "set exactly one of emptyDir, configMap and secret; data on a claim has a pvc:// URI",
        {"template": {"volumes": [{"name": "v", "emptyDir": {}}]}},
    ),
    (
        "mount that climbs",
        {"template": {"volumeMounts": [{"name": "v", "mountPath": "/mnt/extra/../v"}]}},
        "must not contain '..'",
        {"template": {"volumeMounts": [{"name": "v", "mountPath": "/mnt/extra/.v"}]}},
    ),
    ("name of a variable", {"template": {"env": [{"name": "1A"}]}}, "should match", {"template": {"env": [{"name": "A1"}]}}),
    (
        "the same variable twice",
        {"template": {"env": [{"name": "A"}, {"name": "A"}]}},
        "Duplicate value",
        {"template": {"env": [{"name": "A"}, {"name": "B"}]}},
    ),
    ("many variables", {"template": {"env": variables(65)}}, "must have at most 64 items", {"template": {"env": variables(64)}}),
    (
        "long variable",
        {"template": {"env": [{"name": "A", "value": "v" * 4097}]}},
        "Too long",
        {"template": {"env": [{"name": "A", "value": "v" * 4096}]}},
    ),
    (
        "the same secret twice",
        {"template": {"imagePullSecrets": ["a", "a"]}},
        "Duplicate value",
        {"template": {"imagePullSecrets": ["a", "b"]}},
    ),
    (
        "long class name",
        {"template": {"priorityClassName": "p" * 254}},
        "Too long: may not be more than 253",
        {"template": {"priorityClassName": "p" * 253}},
    ),
    ("unknown field", {"deadlin": LATER}, 'unknown field "spec.deadlin"', {"deadline": LATER}),
]

SIGNATURE: Raw = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
}
QUANTIZATION: Raw = {"method": "Dynamic", "evaluation": "pvc://c/rows.npy"}
VERSION: Raw = {"name": "1", "uri": "pvc://data/m.onnx"}
IN_S3: Raw = {"name": "1", "uri": "s3://models/m.onnx", "digest": DIGEST}
MODELS: list[Case] = [
    ("no version", {"versions": []}, "should have at least 1 items", {"versions": [VERSION]}),
    ("versions left out", {"versions": None}, "Required value", {"versions": [VERSION]}),
    (
        "the same version twice",
        {"versions": [VERSION, VERSION]},
        "Duplicate value",
        {"versions": [VERSION, {**VERSION, "name": "2"}]},
    ),
    (
        "many versions",
        {"versions": [{**VERSION, "name": str(n)} for n in range(65)]},
        "must have at most 64 items",
        {"versions": [{**VERSION, "name": str(n)} for n in range(64)]},
    ),
    (
        "the same declared profile twice",
        {
            "declaredProfiles": [
                {"accelerator": "cpu", "itemsPerSecond": 1.0},
                {"accelerator": "cpu", "backend": "auto", "itemsPerSecond": 2.0},
            ]
        },
        "declaredProfiles must name each pair of accelerator and backend once",
        {
            "declaredProfiles": [
                {"accelerator": "cpu", "itemsPerSecond": 1.0},
                {"accelerator": "cpu", "backend": "onnx", "itemsPerSecond": 2.0},
            ]
        },
    ),
    ("defaultVersion that is none", {"defaultVersion": "2"}, "defaultVersion must name one of versions", {"defaultVersion": "1"}),
    (
        "static without calibration",
        {"versions": [{**VERSION, "quantization": {"method": "Static", "evaluation": "pvc://c/rows.npy"}}]},
        "Static needs calibration: rows that look like what will be asked",
        {"versions": [{**VERSION, "quantization": {"method": "Dynamic", "evaluation": "pvc://c/rows.npy"}}]},
    ),
    (
        "rows from afar",
        {"versions": [{**VERSION, "quantization": {"method": "Dynamic", "evaluation": "https://h/rows.npy"}}]},
        "must be on a volume: pvc://CLAIM/PATH",
        {
            "versions": [
                {
                    **VERSION,
                    "quantization": {"method": "Static", "evaluation": "pvc://c/rows.npy", "calibration": "pvc://c/others.npy"},
                }
            ]
        },
    ),
    (
        "http version",
        {"versions": [{"name": "1", "uri": "https://h/m"}]},
        "a version fetched over the network needs its digest (sha256:HEX)",
        {"versions": [{"name": "1", "uri": "https://h/m", "digest": DIGEST}]},
    ),
    *(
        (
            f"{uri.partition(':')[0]} version without a digest",
            {"versions": [{"name": "1", "uri": uri}]},
            "a version fetched over the network needs its digest (sha256:HEX)",
            {"versions": [{"name": "1", "uri": uri, "digest": DIGEST}]},
        )
        for uri in ("s3://models/m.onnx", "hf://org/net/m.onnx", "oci://r.example/net:v1")
    ),
    (
        "storage of a volume",
        {"versions": [{**VERSION, "storage": BY_SECRET}]},
        NO_STORE,
        {"versions": [{**IN_S3, "storage": BY_SECRET}]},
    ),
    (
        "storage that says nothing",
        {"versions": [{**IN_S3, "storage": {}}]},
        "storage needs secretRef or awsRoleArn",
        {"versions": [{**IN_S3, "storage": BY_ROLE}]},
    ),
    (
        "a role for a hub",
        {"versions": [{**IN_S3, "uri": "hf://org/net/m.onnx", "storage": BY_ROLE}]},
        "storage.awsRoleArn is for s3://",
        {"versions": [{**IN_S3, "storage": {**BY_ROLE, **BY_SECRET}}]},
    ),
    (
        "a role that is none",
        {"versions": [{**IN_S3, "storage": {"awsRoleArn": "models-reader"}}]},
        "should match '^arn:",
        {"versions": [{**IN_S3, "storage": BY_ROLE}]},
    ),
    (
        "a Secret of another namespace",
        {"versions": [{**IN_S3, "storage": {"secretRef": {"name": "ops/models"}}}]},
        "should match",
        {"versions": [{**IN_S3, "storage": BY_SECRET}]},
    ),
    ("version that climbs", {"versions": [{"name": "1", "uri": "pvc://d/../m"}]}, CLIMBS, {"versions": [VERSION]}),
    ("scheme of a version", {"versions": [{"name": "1", "uri": "azure://b/m"}]}, BAD_MODEL_SCHEME, {"versions": [VERSION]}),
    (
        "scheme of a signature",
        {"versions": [{**VERSION, "signatureUri": "azure://b/m.sig"}]},
        BAD_MODEL_SCHEME,
        {"versions": [{**VERSION, "signatureUri": "pvc://d/m.sig"}]},
    ),
    (
        "name of a version",
        {"versions": [{**VERSION, "name": "-1"}]},
        "should match",
        {"versions": [{**VERSION, "name": "v1.0_rc-2"}]},
    ),
    (
        "long name of a version",
        {"versions": [{**VERSION, "name": "v" * 64}]},
        "Too long: may not be more than 63",
        {"versions": [{**VERSION, "name": "v" * 63}]},
    ),
    (
        "digest of a version",
        {"versions": [{**VERSION, "digest": "md5:1"}]},
        "should match '^sha256:",
        {"versions": [{**VERSION, "digest": DIGEST}]},
    ),
    (
        "format of a version",
        {"versions": [{**VERSION, "format": "pickle"}]},
        "should match '^(onnx|torchscript)$'",
        {"versions": [{**VERSION, "format": "torchscript", "signature": SIGNATURE}]},
    ),
    (
        "torchscript without a signature",
        {"versions": [{**VERSION, "format": "torchscript"}]},
        "signature is for torchscript, whose files do not say what they take, and torchscript needs it",
        {"versions": [{**VERSION, "format": "torchscript", "signature": SIGNATURE}]},
    ),
    (
        "a name for two inputs",
        {"versions": [{**VERSION, "format": "torchscript", "signature": {**SIGNATURE, "inputs": SIGNATURE["inputs"] * 2}}]},
        "each input and each output needs a name of its own",
        {"versions": [{**VERSION, "format": "torchscript", "signature": SIGNATURE}]},
    ),
    (
        "quantization of torchscript",
        {"versions": [{**VERSION, "format": "torchscript", "signature": SIGNATURE, "quantization": QUANTIZATION}]},
        "quantization is for onnx",
        {"versions": [{**VERSION, "quantization": QUANTIZATION}]},
    ),
    (
        "fewer warm workers at most than at least",
        {"warmPool": {"min": 2, "max": 1}},
        "max must not be below min",
        {"warmPool": {"min": 2}},
    ),
    (
        "sharing with Triton",
        {"warmPool": {"sharing": "SameNamespace", "backend": "triton"}},
        "sharing needs backend onnx: what a model takes in another server's memory is not known before it is there",
        {"warmPool": {"backend": "triton"}},
    ),
    ("warm workers below", {"warmPool": {"min": -1}}, "greater than or equal to 0", {"warmPool": {"min": 0}}),
    (
        "warm workers above",
        {"warmPool": {"min": 101, "max": 200}},
        "less than or equal to 100",
        {"warmPool": {"min": 100, "max": 200}},
    ),
    ("idle too long", {"warmPool": {"idleSeconds": 86_401}}, "less than or equal to 86400", {"warmPool": {"idleSeconds": 86_400}}),
    (
        "the same class twice on any back end",
        {"declaredProfiles": [{"accelerator": "cpu", "itemsPerSecond": 1}] * 2},
        "declaredProfiles must name each pair of accelerator and backend once",
        {"declaredProfiles": [{"accelerator": "cpu", "itemsPerSecond": 1, **more} for more in ({}, {"backend": "triton"})]},
    ),
    (
        "the same class twice",
        {"resources": [{"accelerator": "cpu", "resources": {}}] * 2},
        "Duplicate value",
        {"resources": [{"accelerator": "cpu", "resources": {}}]},
    ),
]


@pytest.mark.parametrize(("spec", "words", "neighbour"), [pytest.param(*case[1:], id=case[0]) for case in JOBS])
def test_a_job_is_refused_in_words_and_its_neighbour_is_taken(
    cluster: Cluster, namespace_of_all: str, spec: Raw, words: str, neighbour: Raw
) -> None:
    _refuses(lambda s: _try(cluster, jobs(namespace_of_all), a_job(**s)), spec, words, neighbour)


@pytest.mark.parametrize(("spec", "words", "neighbour"), [pytest.param(*case[1:], id=case[0]) for case in MODELS])
def test_a_model_is_refused_in_words_and_its_neighbour_is_taken(
    cluster: Cluster, namespace_of_all: str, spec: Raw, words: str, neighbour: Raw
) -> None:
    def attempt(given: Raw) -> Answer:
        model = a_model(**given)
        model["spec"] = {key: value for key, value in model["spec"].items() if value is not None}
        return _try(cluster, models(namespace_of_all), model)

    _refuses(attempt, spec, words, neighbour)


@pytest.mark.parametrize("name", ["http-requests", "https.classifier", "httpbin"])
def test_a_models_name_may_begin_with_http(cluster: Cluster, namespace_of_all: str, name: str) -> None:
    assert _try(cluster, jobs(namespace_of_all), a_job(model=name)).message == ""


@pytest.mark.parametrize("way", ["pvc://data/%2e%2e/secret", "pvc://data/%2E%2E/secret", "pvc://data/.%2e/secret"])
def test_a_percent_encoded_way_out_of_a_volume_is_refused_by_the_api(cluster: Cluster, namespace_of_all: str, way: str) -> None:
    # The operator and the worker refuse it too; here it would be told at kubectl apply.
    assert not _try(cluster, jobs(namespace_of_all), a_job(**{**FILES, "input": {"uri": way}})).ok


@pytest.mark.parametrize(
    ("before", "after"),
    [(a_batch(), a_job()), (a_job(), a_batch()), (a_job(serve={}), a_job(**FILES))],
    ids=["batch to serving", "serving to batch", "serve to files"],
)
def test_a_job_stays_batch_or_serving_for_life(cluster: Cluster, namespace: str, before: Raw, after: Raw) -> None:
    cluster.client.create(jobs(namespace), before)

    refused = cluster.client.replace_spec(f"{jobs(namespace)}/job", after["spec"])

    assert refused.code == 422
    assert "a job stays batch or serving for life; create another job instead" in refused.message


@pytest.mark.parametrize("phase", ["Starting", "Running"])
@pytest.mark.parametrize(("before", "after"), [("team", "other"), ("team", None), (None, "team")])
def test_a_batch_that_runs_stays_in_its_queue(
    cluster: Cluster, namespace: str, phase: str, before: str | None, after: str | None
) -> None:
    path = f"{jobs(namespace)}/job"
    cluster.client.create(jobs(namespace), a_batch(queueName=before))
    moved = a_batch(queueName=after)["spec"]
    assert cluster.client.call("PUT", path, _with_spec(cluster, path, moved), dryRun="All").message == ""
    cluster.client.merge(f"{path}/status", {"status": {"phase": phase}})

    refused = cluster.client.call("PUT", path, _with_spec(cluster, path, moved), dryRun="All")
    assert refused.code == 422
    assert QUEUE_OF_A_RUN in refused.message
    same = a_batch(queueName=before, priority=9, suspend=True)["spec"]
    assert cluster.client.call("PUT", path, _with_spec(cluster, path, same), dryRun="All").message == ""
    cluster.client.merge(f"{path}/status", {"status": {"phase": "Suspended"}})
    assert cluster.client.call("PUT", path, _with_spec(cluster, path, moved), dryRun="All").message == ""


def _with_spec(cluster: Cluster, path: str, spec: Raw) -> Raw:
    return {**cluster.client.get(path), "spec": spec}


def test_all_else_of_a_job_may_be_changed(cluster: Cluster, namespace: str) -> None:
    cluster.client.create(jobs(namespace), a_batch())
    spec = {**FILES, "model": "lanes", "priority": 9, "deadline": LATER, "batchSize": 8, "suspend": True, "maxAttempts": 1}

    assert cluster.client.replace_spec(f"{jobs(namespace)}/job", spec).message == ""


def test_every_rule_of_the_crds_is_walked_by_a_case_here() -> None:
    from tests.cluster.test_crds import crds

    told = {rule["message"] for crd in crds() for rule in _rules(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"])}
    walked = {case[2] for case in (*JOBS, *MODELS)}
    # The enum refuses first; transitions have tests of their own.
    elsewhere = {
        "mode is one of None, HPA and External",
        "a job stays batch or serving for life; create another job instead",
        QUEUE_OF_A_RUN,
        "the batch has succeeded, so its model, accelerator, backend, batchSize, input and output can't change; create another job",
    }

    assert told - walked == elsewhere


@pytest.fixture(scope="module")
def namespace_of_all(cluster: Cluster) -> str:
    # Everything that goes there is a dry run.
    from tests.cluster.conftest import make_namespace

    return make_namespace(cluster.client)


def _try(cluster: Cluster, path: str, body: Raw) -> Answer:
    return cluster.client.call("POST", path, body, dryRun="All", fieldValidation="Strict")


def _refuses(attempt: Callable[[Raw], Answer], spec: Raw, words: str, neighbour: Raw) -> None:
    refused = attempt(spec)
    assert refused.code in (400, 422)
    assert words in refused.message
    assert attempt(neighbour).message == ""


def _rules(schema: Any) -> list[Raw]:
    if isinstance(schema, list):
        return [rule for child in schema for rule in _rules(child)]
    if not isinstance(schema, dict):
        return []
    own = schema.get("x-kubernetes-validations", [])
    return [*own, *(rule for key, child in schema.items() if key != "x-kubernetes-validations" for rule in _rules(child))]
