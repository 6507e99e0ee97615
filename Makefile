.PHONY: help install install-quick run demo demo-postgres check quick test campaign fuzz test-kafka-tools test-object-store \
	test-oldest-spark test-ydb test-cursus bench screenshots shape docs release clean kafka-go kafka-jars kafka-javascript kafka-spark s3-server s3-jars

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OLDEST_SPARK := .venv-oldest-spark
# The newest Spark whose Kafka connector can be had completely from Maven's central repository.
KAFKA_SPARK := .venv-kafka-spark
READY := $(VENV)/.installed
READY_QUICK := $(VENV)/.installed-quick
# What `make quick` needs: everything, or the part of it.
INSTALLED := $(or $(wildcard $(READY)),$(READY_QUICK))
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt
# What `make bench` measures; each says in its --help, and at the top of its module, what it prints.
BENCHES := engine topics http flight kafka ydb postgres archive tables spark spark.kafka console startup attacks latency peers \
	sizing stages
# Of `make campaign`: for each store; more options in CAMPAIGN, such as --store disk.
SECONDS ?= 300
# Of `make campaign`: how often Spark's driver is killed, for each store.
KILLS ?= 30
# Of `make campaign` and `make fuzz`: another one each time, which the commands print; SEED=N repeats their choices.
ifndef SEED
SEED := $(strip $(shell od -An -N4 -tu4 /dev/urandom))
endif
PYTEST := $(BIN)/python -m pytest
# Processes share out the test files, in the order that tests/conftest.py gives them: one more than a small machine has
# cores, since a fifth of the time is waiting. A test that hangs fails, with the stacks of all threads.
IN_PARALLEL := --dist=loadfile --no-loadscope-reorder --timeout=300 --numprocesses
PARALLEL := $(PYTEST) $(IN_PARALLEL)
# Each of those processes starts a Java of its own, so these tests run separately, in fewer processes.
ON_SPARK := tests/spark $(wildcard tests/pipeline) tests/cli/test_demo.py tests/campaign/test_spark_kills.py
COVERED := --cov-branch --cov-report=term --cov-fail-under=100

help:  ## list the commands
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 19

install: $(READY)  ## make .venv with Headrace and its tools in it
install-quick: $(INSTALLED)  ## the same without Spark, Java and a browser: for the broker

# An S3 server for the tests of the archive. Without its dependencies, most of which are there anyway: botocore asks for an
# older python-dateutil than the other tools, and works with the newer one.
S3_SERVER := moto boto3 botocore s3transfer jmespath flask flask-cors itsdangerous blinker responses xmltodict \
	py-partiql-parser

NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11) and "Headrace needs Python 3.11 or newer, this is " + sys.version)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c '$(NEW_ENOUGH)'
	@echo 'Installing Headrace and its tools into $(VENV), once: Spark with a Java, PostgreSQL for the tests, the console.'
	@echo 'About 2 GB on disk and a few minutes, most of them for downloads.'
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --editable '.[dev]'
	$(PIP_INSTALL) --no-deps $(S3_SERVER)
	@touch $@

$(READY_QUICK): pyproject.toml constraints.txt
	$(PYTHON) -c '$(NEW_ENOUGH)'
	@echo 'Installing Headrace and what the tests of the broker need into $(VENV), once: about 700 MB on disk.'
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --editable '.[quick]'
	@touch $@

release:  ## sdist and wheel in dist/, tried on Python 3.11 to 3.14
	$(PYTHON) packaging/release.py

demo: install  ## a server, groups, a retry, balances on Spark: about a minute
	$(BIN)/python examples/demo.py

demo-postgres: install  ## two servers on one PostgreSQL, one kill: twenty seconds
	$(BIN)/python examples/demo_postgres.py

run: install  ## run a server with a console on ./headrace-data until Ctrl-C
	$(BIN)/headrace serve --console --kafka 127.0.0.1:9092 --native 127.0.0.1:7073

test: check  ## check the code, then run all tests
	@echo '== 1 of 4: core'
	$(PARALLEL) 3 tests/core --cov=src/headrace/core $(COVERED)
	@echo '== 2 of 4: storage'
	$(PARALLEL) 3 tests/storage --cov=src/headrace/storage $(COVERED)
	@echo '== 3 of 4: all but core, storage and Spark'
	$(PARALLEL) 3 tests $(addprefix --ignore=,tests/core tests/storage $(ON_SPARK))
	@echo '== 4 of 4: Spark'
	$(PARALLEL) 2 $(ON_SPARK)

# Of the light install: the packages whose imports it has.
TYPED_QUICK := $(if $(wildcard $(READY)),,--follow-imports=silent \
	$(addprefix src/headrace/,core storage broker edge protocols wire client) $(addprefix tests/,core broker edge wire faults))

quick: $(INSTALLED)  ## lint, types, contracts, core, wire, a test of each protocol
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(TYPED_QUICK)
	$(BIN)/lint-imports
	$(PARALLEL) 2 tests/core tests/wire tests/test_smoke.py

check: install  ## lint, types and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: install  ## build the documentation as a site in build/site
	$(BIN)/python docs/reference/generate_cli.py > docs/reference/cli.new
	mv docs/reference/cli.new docs/reference/cli.md
	$(BIN)/python docs/reference/generate_limits.py > docs/limits.new
	mv docs/limits.new docs/limits.md
	$(BIN)/python docs/reference/generate_python.py > docs/reference/python.new
	mv docs/reference/python.new docs/reference/python.md
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

shape: install  ## print the shape of the tree, and the path of a message
	$(BIN)/python -m tests.shape

# Packages, jars and options that a bench needs beside the tools.
bench-kafka bench-spark.kafka: kafka-jars
bench-spark.kafka: kafka-spark
bench-peers bench-spark.kafka: PACKAGES := '.[bench]'
bench-peers: OPTIONS ?= --plot docs/peers.png

bench: $(if $(NAME),bench-$(NAME))  ## measure: NAME=flight OPTIONS=--help; lists what there is
	@$(if $(NAME),,echo 'make bench NAME=..., one of: $(BENCHES)')

$(addprefix bench-,$(BENCHES)): bench-%: install
	$(if $(PACKAGES),$(PIP_INSTALL) --quiet --editable $(PACKAGES))
	$(BIN)/python -m bench.$* $(OPTIONS)

screenshots: install  ## make the pictures in docs/console again, in Chromium
	$(BIN)/python -m tests.console.screenshots

# Apache Kafka and its tools.
kafka-jars:
	mvn -q -B -f bench/peers/kafka_jars/pom.xml dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=target

# Spark's Kafka connector, and its Spark in an environment of its own.
kafka-spark:
	mvn -q -B -f tests/kafka_tools/spark_jars/pom.xml dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=target
	$(PYTHON) -m venv $(KAFKA_SPARK)
	$(KAFKA_SPARK)/bin/python -m pip install --quiet --disable-pip-version-check pyspark==4.0.0

# kafkajs for test-kafka-tools, with npm.
kafka-javascript:
	npm install --prefix tests/kafka_tools/javascript --no-package-lock --no-audit --no-fund --silent

# Programs on clients in Go, and franz-go's own tests of a broker, compiled; their modules come as go.mod names them.
KAFKA_GO := build/kafka-go
kafka-go:
	rm -rf $(KAFKA_GO)
	mkdir -p build
	cp -r tests/kafka_tools/golang $(KAFKA_GO)
	cd $(KAFKA_GO) && go mod tidy && go build -o bin/ ./...
	cp -r $$(cd $(KAFKA_GO) && go list -m -f '{{.Dir}}' github.com/twmb/franz-go) $(KAFKA_GO)/franz-go
	chmod -R u+w $(KAFKA_GO)/franz-go
	cd $(KAFKA_GO)/franz-go && go test -c -o ../bin/franz-go-tests ./pkg/kgo

test-kafka-tools: install kafka-go kafka-jars kafka-javascript kafka-spark  ## clients of Kafka; needs Go, Java, Maven, Node.js
	$(PYTEST) -m kafka_tools tests/kafka_tools
	$(BIN)/python -m tests.kafka_tools.comparison

# An S3 server in Go that keeps objects as files. Its name is that of its module.
S3_MODULE := github.com/versity/versitygw/cmd/versitygw@v1.8.0

s3-server:
	GOBIN=$(CURDIR)/build/s3-server go install $(S3_MODULE)

# A checkout of YDB's SDK for Python, and of those for Go and JavaScript if their tests shall run too; in an environment
# with the pytest that Python's asks for.
YDB_ENVIRONMENT := .venv-ydb-sdk
YDB_SUITES = tests/ydb_sdk/test_python.py $(if $(YDB_GO_SDK),tests/ydb_sdk/test_go.py) \
	$(if $(YDB_JS_SDK),tests/ydb_sdk/test_javascript.py)

test-ydb: install  ## YDB's SDKs' own tests: YDB_SDK= YDB_GO_SDK= YDB_JS_SDK=
	$(PYTHON) -m venv $(YDB_ENVIRONMENT)
	$(YDB_ENVIRONMENT)/bin/python -m pip install --quiet --disable-pip-version-check $$(grep -E '^(ydb|grpcio|protobuf)==' \
		constraints.txt) 'pytest<8' pytest-asyncio==0.21.0
	YDB_SDK=$(YDB_SDK) YDB_GO_SDK=$(YDB_GO_SDK) YDB_JS_SDK=$(YDB_JS_SDK) $(PYTEST) -m ydb_sdk $(YDB_SUITES)

# The client is installed from its checkout: PyPI's release has no tests.
CURSUS_ENVIRONMENT := .venv-cursus-client

test-cursus: install  ## cursus' Python client's own tests: CURSUS_CLIENT=
	$(PYTHON) -m venv $(CURSUS_ENVIRONMENT)
	$(CURSUS_ENVIRONMENT)/bin/python -m pip install --quiet --disable-pip-version-check pytest pytest-asyncio $(CURSUS_CLIENT)
	$(BIN)/python -m tests.protocols.cursus.own_tests $(CURDIR)/$(CURSUS_ENVIRONMENT)/bin/python $(abspath $(CURSUS_CLIENT))

# Spark's file system for S3: about 700 MB.
s3-jars:
	mvn -q -B -f tests/object_store/spark_jars/pom.xml dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=target

test-object-store: install s3-server s3-jars  ## an S3 server that fails; needs Go, Java and Maven
	$(PYTEST) -m object_store tests/object_store

test-oldest-spark:  ## the data source on the oldest Spark that is supported
	$(PYTHON) -m venv $(OLDEST_SPARK)
	grep -v '^pyspark==' constraints.txt > $(OLDEST_SPARK)/constraints.txt
	$(OLDEST_SPARK)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(OLDEST_SPARK)/constraints.txt --editable '.[dev]' 'pyspark[connect]==4.2.0'
	$(OLDEST_SPARK)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(OLDEST_SPARK)/constraints.txt --no-deps $(S3_SERVER)
	$(OLDEST_SPARK)/bin/python -m pytest $(IN_PARALLEL) 2 tests/spark

campaign: install  ## long random runs: SECONDS=300 a store, KILLS=30, SEED=N
	$(BIN)/python -m tests.campaign --seconds $(SECONDS) --seed $(SEED) $(CAMPAIGN)
	$(BIN)/python -m tests.campaign.members --seconds $(SECONDS) --seed $(SEED)
	$(BIN)/python -m tests.campaign.mixed_members --seconds $(SECONDS) --seed $(SEED)
	$(BIN)/python -m tests.campaign.spark_kills --kills $(KILLS) --seed $(SEED)
	$(PYTEST) -m 'campaign or hypothesis' --hypothesis-profile=campaign --hypothesis-seed=$(SEED)

fuzz: install  ## a million spoiled requests over each protocol: SEED=N, FUZZ=
	$(BIN)/python -m tests.hostile.fuzz --seed $(SEED) $(FUZZ)

clean:  ## remove everything that can be made again
	rm -rf $(VENV) $(OLDEST_SPARK) $(KAFKA_SPARK) $(YDB_ENVIRONMENT) $(CURSUS_ENVIRONMENT) .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
