# One verb for each thing that a developer does; `make` alone lists them.
# The work is done by the Python package dev/, which needs nothing but Python and root.

export PYTHONPATH := operator:protocol:worker-image:client
export ORT_DISABLE_TELEMETRY := 1
PYTHON := .venv/bin/python
SYSTEM_PYTHON := python3
CODE := dev operator protocol worker-image client tests bench examples

.DEFAULT_GOAL := help
.PHONY: help venv cluster cluster-down images crds dashboards docs lock lint test test-engines test-others test-growth test-kueue fuzz fuzz-wire mutants install demo bench

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|'

venv: ## the development environment, linked as .venv
	@$(SYSTEM_PYTHON) -m dev.venv

cluster: ## a real two-node Kubernetes on this machine
	@$(SYSTEM_PYTHON) -m dev.cluster up

cluster-down: ## end the cluster and remove what it made
	@$(SYSTEM_PYTHON) -m dev.cluster down

images: cluster ## both images, built and brought to the nodes
	@$(SYSTEM_PYTHON) -m dev.images

sbom: venv ## the bills of materials of both images, in build/sbom: make sbom ARCHIVES="image.tar"
	@$(PYTHON) -m dev.sbom $(ARCHIVES)

image-gpu: ## the worker's image for NVIDIA GPUs, built and left in the cache (8 GB of disk, ten minutes)
	@$(SYSTEM_PYTHON) -m dev.images --gpu

crds: venv ## write crds/, and the client's types and texts, from the Python model
	$(PYTHON) -m inference_operator.api.crd crds charts/inference-operator/files/crds
	$(PYTHON) -m dev.client

kustomize: venv ## the bases for Kustomize in config/, made from the chart
	$(PYTHON) -m dev.kustomize

dashboards: venv ## write the chart's Grafana dashboards
	$(PYTHON) -m dev.dashboards

docs: venv ## the reference pages and the schema of the chart's values, made from the code
	$(PYTHON) docs/build.py
	$(PYTHON) -m dev.values_schema

site: venv ## the documentation as a site in build/site; each warning ends the build
	@$(PYTHON) -m dev.site

site-version: venv ## the site as a version beside those on the branch gh-pages: make site-version VERSION=0.2.0
	@$(PYTHON) -m dev.site release $(VERSION)

# Versions stay, but those of the packages that are named: make lock UPGRADE="aiohttp msgspec".
lock: venv ## the locked requirements with the hashes of all platforms' files
	@$(PYTHON) -m dev.lock $(UPGRADE)

lint: venv ## style, types and import directions
	.venv/bin/ruff check $(CODE)
	.venv/bin/ruff format --check $(CODE)
	$(PYTHON) -m mypy
	.venv/bin/lint-imports
	$(PYTHON) -m dev.lint.words
	$(PYTHON) -m dev.lint.sizes
	$(PYTHON) -m dev.lint.pins

# Cheap before dear: what a pure test can tell should not wait for a cluster. Each part runs whatever became of the one before.
PURE := tests/unit tests/simulation tests/fuzz tests/mutants
PROCESSES := tests/process tests/component tests/conformance
CLUSTERS := tests/cluster tests/e2e
# Tests of one file share what they start: each process begins with half of the files, and steals from the other at the end.
BESIDE := -n 2 --dist worksteal

test: lint ## every test, on a cluster of its own making
	@failed=0; set -x; \
	$(PYTHON) -m pytest $(BESIDE) $(PURE) || failed=1; \
	$(PYTHON) -m pytest $(BESIDE) $(PROCESSES) || failed=1; \
	$(PYTHON) -m pytest $(CLUSTERS) || failed=1; \
	{ set +x; } 2>/dev/null; exit $$failed

test-engines: export INFERENCE_ENGINES = all
test-engines: venv ## all of what holds for every back end (fetches PyTorch, 5 GB)
	$(PYTHON) -m pytest -q tests/process/engines
	WORKER_TEST_BACKEND=triton $(PYTHON) -m pytest -q tests/process/reports tests/process/test_tasks.py
	$(PYTHON) -m pytest -q tests/e2e/test_backends.py

test-others: export INFERENCE_OTHERS = all
test-others: venv ## KEDA, the Prometheus adapter and Envoy Gateway, real ones (builds them once, twenty minutes)
	$(PYTHON) -m pytest -q tests/component/test_envoy_gateway.py tests/e2e/test_others.py

test-growth: export INFERENCE_GROWTH = all
test-growth: venv ## the real Karpenter grows a cluster of no GPU node and shrinks it again (builds it once, ten minutes)
	$(PYTHON) -m pytest -q tests/cluster/test_growth.py

test-kueue: export INFERENCE_KUEUE = all
test-kueue: venv ## batches in queues of the real Kueue (builds it once, ten minutes; root)
	$(PYTHON) -m pytest -q tests/cluster/test_kueue.py

test-traces: export INFERENCE_TRACES = all
test-traces: venv ## traces from callers through Envoy to runs, in a real Jaeger (builds it once, ten minutes)
	$(PYTHON) -m pytest -q tests/component/test_jaeger.py

test-gitops: export INFERENCE_GITOPS = all
test-gitops: venv ## the operator and jobs in Git by the real Argo CD and Flux's controllers (builds them once, twenty minutes)
	$(PYTHON) -m pytest -q tests/gitops

test-krew: export INFERENCE_KREW = all
test-krew: venv ## kubectl inference, frozen and installed by the real Krew (builds both, three minutes)
	$(PYTHON) -m pytest -q tests/process/test_krew.py

test-network: export INFERENCE_NETWORK = enforced
test-network: venv ## the chart's NetworkPolicies, enforced on the local cluster (builds the firewall once, two minutes)
	$(PYTHON) -m pytest -q tests/e2e/test_network_policies.py

check-manifests: export INFERENCE_CHECKS = all
check-manifests: venv ## kube-score and Trivy over the chart and what the operator makes (builds Trivy once, ten minutes)
	$(PYTHON) -m pytest -q tests/cluster/test_manifests.py

# A worker of its own for each model; `make test` loads a sample of them in one.
test-conformance: export SAMPLE := $(if $(filter command,$(origin SAMPLE)),$(SAMPLE),0)
test-conformance: venv ## all of ONNX's conformance models against the bare runtime: make test-conformance SAMPLE=100
	$(PYTHON) -m pytest -q $(BESIDE) tests/conformance

test-large: venv ## models of more than 2 GB in a real worker (takes 8 GB of memory, a few minutes)
	$(PYTHON) -m pytest -q tests/large

# By coverage, for inputs that nobody thought of; what breaks is written to the folder and ends the run.
SECONDS := 60
fuzz: venv ## look for inputs that break the parsers: make fuzz SECONDS=600
	@$(PYTHON) -m tests.fuzz.all $(SECONDS)

TARGET := all
REQUESTS := 1000000
fuzz-wire: venv ## requests that are nearly right against real processes: make fuzz-wire TARGET=http1 REQUESTS=1000000 SEED=1
	@$(PYTHON) -m tests.fuzz.wire --target $(TARGET) --requests $(REQUESTS) --seed $(SEED)

FAULTS := 50
chaos: venv images ## faults against the local cluster under load, drawn from a seed: make chaos SEED=1 FAULTS=50
	@$(PYTHON) -m tests.chaos.run --seed $(SEED) --faults $(FAULTS)

# Hours for all: a sample is stable, what is known is kept in build/mutants, and a run that was cut off goes on.
SAMPLE := 200
SEED := 1
MINUTES := 60
mutants: venv ## small faults in the pure packages that no test notices: make mutants SAMPLE=200 SEED=1 MINUTES=60
	@$(PYTHON) -m dev.mutants --sample $(SAMPLE) --seed $(SEED) --minutes $(MINUTES)

install: venv images ## the operator of this checkout on the local cluster, without the examples
	@$(PYTHON) -m examples.demo.install

# The plain cluster is what CI has. With CLUSTER=kind the same runs in Docker.
demo: venv $(if $(filter kind,$(CLUSTER)),kind,images) ## the whole story on the local cluster, or on kind: make demo CLUSTER=kind
	$(if $(filter kind,$(CLUSTER)),KUBECONFIG=$$($(PYTHON) -m dev.kind kubeconfig)) $(PYTHON) -m examples.demo

kind: venv ## a cluster of kind with this checkout's images, where Docker is
	@$(PYTHON) -m dev.kind up

kind-down: venv ## delete it
	@$(PYTHON) -m dev.kind down

bench: venv ## one benchmark: make bench NAME=...
	$(PYTHON) -m bench $(NAME)

.PHONY: chaos kind kind-down kustomize sbom site site-version hooks version run plugin image-gpu test-conformance test-gitops test-krew test-large test-network test-traces check-manifests
hooks: venv ## have git run the checks of lint at each commit
	@$(PYTHON) -m dev.lint.hooks install

# Not a VERSION of the environment: what is written has to be asked for.
version: ## check the version, or write it everywhere: make version VERSION=0.2.0
	@$(SYSTEM_PYTHON) -m dev.lint.version $(if $(filter command,$(origin VERSION)),$(VERSION))

URL := https://example.com/releases
plugin: venv ## kubectl inference for Krew, an archive and its manifest: make plugin URL=https://HOST/vVERSION
	@$(PYTHON) -m dev.plugin --url $(URL)

run: venv ## the operator of this checkout in the place of the deployed one: make run DEBUG=1 ARGS="--port 9090"
	@$(PYTHON) -m dev.run $(if $(DEBUG),--debug) $(ARGS)
