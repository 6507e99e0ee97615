"""Every limit of Headrace, in one place.

A limit that users may set has its default here and its hard bound beside it (`_MAX`). Sizes are bytes, durations
are seconds unless the name says otherwise.
"""

MICROSECONDS = 1_000_000

NAME_CHARACTERS_MAX = 255
ID_CHARACTERS_MAX = 2048
# In a row, in names and ids: what Unicode calls safe to process as a stream. No language needs a third of it.
COMBINING_MARKS_MAX = 30
PARTITIONS_MAX = 10_000
TOPICS_MAX = 100_000
# What a store may have unless its settings say otherwise: partitions of all topics together.
TOPICS_IN_STORE = 10_000
PARTITIONS_IN_STORE = 100_000
GROUPS_PER_TOPIC = 10_000
MEMBERS_PER_GROUP = 1_000

MESSAGE_BYTES_DEFAULT = 1 << 20
MESSAGE_BYTES_MAX = 64 << 20
# The maximum size of one decompressed value, whatever its header says, and of all values of one batch: a batch that
# would grow further is delivered in parts.
DECODED_MESSAGE_BYTES_MAX = MESSAGE_BYTES_MAX
DECODED_BATCH_BYTES_MAX = 256 << 20
BATCH_ROWS_MAX = 1 << 20
BATCH_BYTES_MAX = 256 << 20
ATTRIBUTES_PER_MESSAGE_MAX = 1_000

# Limits of an Arrow body or upload: messages of an IPC stream, metadata of each, columns. Its bytes, also when
# decompressed, are limited by the body limit of the protocol.
ARROW_MESSAGES_MAX = 10_000
ARROW_METADATA_BYTES_MAX = 64 << 10
ARROW_COLUMNS_MAX = 64
# Work on more bytes than this runs in a thread, so that it does not block the event loop.
LOOP_BYTES_MAX = 64 << 10

# When a message may have been created: the years 1 to 9999, a day inside them, so that no time zone leads out of what
# Python, JSON and Spark can show. 0001-01-02T00:00Z up to, not including, 9999-12-31T00:00Z.
CREATED_AT_US_MIN = -62_135_510_400 * MICROSECONDS
CREATED_AT_US_MAX = 253_402_214_400 * MICROSECONDS - 1

SEQNO_MAX = (1 << 63) - 1
# A seqno further than this above the last one of its source is rejected as a mistake: accepting it would turn all later
# messages of the source into duplicates.
SEQNO_JUMP_MAX = 1 << 40
TIME_US_MAX = (1 << 63) - 1
RETENTION_SECONDS_MAX = 100 * 365 * 24 * 3600
RETENTION_BYTES_MAX = 1 << 60
WRITE_BYTES_MAX = 1 << 40
# The longest that a publisher waits for its outcome because it wrote too fast, well below what clients wait for an
# answer; and what a partition may owe, in seconds of its speed, so that a huge batch does not stop others for hours.
WRITE_WAIT_SECONDS_MAX = 10.0
WRITE_DEBT_SECONDS_MAX = 60.0
# What programs may keep with a topic, in all.
ANNOTATIONS_MAX = 1_000
ANNOTATIONS_BYTES_MAX = 64 << 10

# A source that is idle for this long loses its link to a partition.
LINK_IDLE_SECONDS = 14 * 24 * 3600
# Above this number of sources a topic forgets those that are idle longest and have lost their link.
SOURCES_MAX = 1_000_000
# What an operation may take as it is sent: a commit of some fifty thousand stages. Decoded it takes several times that.
OPERATION_BYTES_MAX = 4 << 20
# What a ticket or the command of an upload may take: ranges of all partitions of a topic take a third of it.
TICKET_BYTES_MAX = 1 << 20
# Grants of a token, and patterns of its groups and producer ids.
GRANTS_PER_TOKEN_MAX = 1_000
# Entries of the audit log that a server keeps in memory, and how many of them one answer has by default.
AUDIT_KEPT = 2_000
# Refusals of one caller, or of one address without a token, that are written to the audit log in a minute.
AUDIT_REFUSALS_PER_MINUTE = 100
AUDIT_LISTED = 200
# Log lines that a server keeps in memory for a bug report, and characters of each.
LOGS_KEPT = 1_000
LOG_CHARACTERS_KEPT = 10_000
# Maximum number of sources in one answer.
SOURCES_LISTED = 1_000
SOURCES_LISTED_MAX = 100_000

# Number of commit key writers that a topic remembers; above it the one idle longest is forgotten.
WRITERS_MAX = 100_000
# The same of writers of a single commit, which a topic and a store remember apart.
ONE_TIME_WRITERS_MAX = 2_000
# Number of writers of transactions that a store remembers, likewise.
STORE_WRITERS_MAX = 100_000
# For how many topics one call may ask for the last commit of a writer.
LAST_COMMITS_TOPICS_MAX = 256
# Number of topics, and of groups, in a transaction.
TRANSACTION_TOPICS_MAX = 10_000
# How many topics one request may ask to be described.
DESCRIBED_TOPICS_MAX = 256

# Number of open producers that a broker remembers; above it the one opened first is forgotten.
PRODUCERS_MAX = 100_000

WINDOW_SECONDS_DEFAULT = 30 * 60
WINDOW_SECONDS_MAX = 7 * 24 * 3600
# One payload takes 24 bytes in a window, and up to twice that while two parts of it are merged.
WINDOW_MESSAGES_DEFAULT = 1_000_000
WINDOW_MESSAGES_MAX = 100_000_000

QUEUE_MESSAGES_PER_PARTITION = 10_000
QUEUE_BYTES = 256 << 20
PUBLISH_TIMEOUT_SECONDS = 30.0
# What one frame holds unless set otherwise; a larger commit is written as several frames that become visible together.
# Arrow's allocator keeps freed memory of up to 16 MiB for the next frame. Larger columns go back to the system, which
# fills their pages with zeros again: a third of the processor time of publishing what Spark staged.
FRAME_BYTES = 12 << 20
FRAME_ROWS = 1 << 18

FETCH_MESSAGES_DEFAULT = 10_000
FETCH_MESSAGES_MAX = 1 << 20
FETCH_BYTES_DEFAULT = 16 << 20
FETCH_BYTES_MAX = 256 << 20
FETCH_WAIT_SECONDS_MAX = 300.0
# How far back a message is looked for by its seqno: what is written while a producer waits to send again.
SEQNO_SEARCH_MESSAGES = 1 << 18
SEQNO_SEARCH_BYTES = 64 << 20

# The position in each partition is part of the id of every event that a live subscription over HTTP sends.
SUBSCRIPTION_PARTITIONS_MAX = 1_000
GROUP_CONSUMERS_MAX = 10_000
# How often a reader retries after retention deleted what it was about to read.
LOOKS_MAX = 16
# How often a queue API consumer retries after another server delivered its next message.
TAKES_MAX = 1_000
# How many queue API ids are tried if groups with their names already exist.
IDS_TRIED_MAX = 1_000
# How long a stop waits for running requests and threads.
STOP_SECONDS = 30.0

# The wall clock was changed if it moved this much against the monotonic clock.
CLOCK_JUMP_SECONDS = 2.0

# The heartbeat of servers of a shared store, and the time without one after which a server is no longer listed.
SERVER_HEARTBEAT_SECONDS = 5.0
# How often a server compares its clock with that of the database that servers share, and how long that may take: the
# error is at most half of it.
CLOCK_COMPARE_SECONDS = 5.0
CLOCK_COMPARE_SECONDS_MAX = 1.0
SERVER_EXPIRY_SECONDS = 30.0

# How many pipelines a topic remembers, for how long, and after which silence a running one counts as lost.
PIPELINES_PER_TOPIC_MAX = 100
PIPELINE_KEPT_SECONDS = 7 * 24 * 3600
PIPELINE_SILENT_SECONDS = 60
PIPELINE_ERROR_CHARACTERS_MAX = 2_000

# SCRAM: how often a password is hashed, which is RFC 7677's least: ours are random. Clients do the same at each login.
SCRAM_ITERATIONS = 4096
SCRAM_NONCE_BYTES_MAX = 1024
SCRAM_SALT_BYTES = 16

# How long callers without a token may be served after the first token was created.
GRACE_SECONDS_MAX = 7 * 86_400

# What a client of Kafka may keep beside a committed offset.
COMMIT_METADATA_BYTES_MAX = 4096
# What all partitions of a group may keep of that in any case, and what all groups of a topic may keep beyond.
COMMIT_NOTES_FREE_BYTES = 4096
COMMIT_NOTES_BYTES_MAX = 64 << 20

SESSION_TIMEOUT_SECONDS = 30.0
SESSION_TIMEOUT_SECONDS_MIN = 0.1
SESSION_TIMEOUT_SECONDS_MAX = 24 * 3600.0
# How long a member may go without a poll; after it, partitions that it was to let go are taken from it.
MAX_POLL_SECONDS = 300.0
MAX_POLL_SECONDS_MAX = 7 * 24 * 3600.0
STAGE_IDLE_SECONDS = 3600.0

# What a client's producer collects into one batch, and what it may buffer, batches in flight included.
PRODUCER_BATCH_BYTES = 1 << 20
PRODUCER_BATCH_MESSAGES = 1 << 16
PRODUCER_BUFFER_BYTES = 64 << 20
PRODUCER_BATCHES_IN_FLIGHT = 16
# What a client's consumer prefetches.
CONSUMER_PREFETCH_BYTES = 32 << 20

SEGMENT_BYTES = 64 << 20
SEGMENT_BYTES_MAX = 1 << 40
SEGMENT_FRAMES = 1 << 16
SEGMENT_FRAMES_MAX = 1 << 24
# A segment holds at most this part of what retention keeps, in bytes or in time, but not less than the least below.
RETENTION_PARTS = 8
PIECE_BYTES_MIN = 64 << 10
LATENESS_SECONDS_MIN = 60.0
RETENTION_CHECK_SECONDS = 10.0
ROOM_BYTES = 1 << 20
ROOM_BYTES_MAX = 16 << 20

# The archive: how long after it was written a message is archived, the size of messages that makes a file of its own
# before that, and of a file below which it is merged with its neighbours.
ARCHIVE_AFTER_SECONDS = 600
ARCHIVE_FILE_BYTES = 256 << 20
ARCHIVE_SMALL_BYTES = 64 << 20
ARCHIVE_MERGE_FILES_MIN = 4
ARCHIVE_MERGE_FILES_MAX = 64
# One row group of a file: what a writer and a reader hold in memory of it.
ARCHIVE_GROUP_ROWS = 1 << 17
ARCHIVE_GROUP_BYTES = 16 << 20
ARCHIVE_CACHE_BYTES = 64 << 20
ARCHIVE_STRAY_SECONDS = 3600
ARCHIVE_CHECK_SECONDS = 10.0
# How much of a core archiving takes while messages are being published: more while cores are idle, in these steps and
# up to this many; less while threads wait for a core, down to this part of what the rest of the server takes. A quarter
# of its work holds Python's lock, so the most is what leaves nine tenths of that lock to publishers. The least doubles
# each time that archiving has been overdue for these seconds: it cannot fall behind for ever.
ARCHIVE_CORES_MAX = 0.4
# The same while values are parsed: most of that work holds the lock.
ARCHIVE_TYPED_CORES_MAX = 0.15
ARCHIVE_CORES_STEP = 0.02
ARCHIVE_CORES_MIN = 0.01
ARCHIVE_SERVER_SHARE = 0.1
ARCHIVE_WAITING_MAX = 0.1
ARCHIVE_CATCH_UP_SECONDS = 300.0
# The schema of a topic's values: its text, its fields at all levels, and how deep they are nested.
VALUE_SCHEMA_BYTES_MAX = 64 << 10
VALUE_SCHEMA_FIELDS_MAX = 1000
VALUE_SCHEMA_DEPTH_MAX = 16
# Ids of a schema registry that one schema may name.
VALUE_SCHEMA_IDS_MAX = 1000
# The digits of a decimal: more than these no engine has.
VALUE_DECIMAL_DIGITS_MAX = 38
# What is parsed at once of a column of values.
VALUE_SLICE_ROWS = 1 << 13
VALUE_SLICE_BYTES = 1 << 20
# How deep a JSON value may be nested, and how many cells the columns of a value, or of all that is parsed at once, may
# have: about 25 bytes each.
VALUE_DEPTH_MAX = 512
VALUE_CELLS_MAX = 1 << 22
# The lease of the server that archives a topic of a shared store.
ARCHIVE_LEASE_SECONDS = 60

# How often a server judges its own health, and how old a verdict may be that it answers with.
HEALTH_CHECK_SECONDS = 15.0
HEALTH_FRESH_SECONDS = 1.0
# Judging takes at most this part of the time, and a caller waits this long for a judgment that runs.
HEALTH_SHARE = 0.1
HEALTH_WAIT_SECONDS = 5.0
# Findings in one answer, and samples of them in the metrics.
FINDINGS_MAX = 200
