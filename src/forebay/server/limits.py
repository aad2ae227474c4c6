"""The bounds of the door, each with its name, default and unit."""

HEADERS_MAX = 100  # count
HEADERS_BYTES_MAX = 32 * 1024
PATH_BYTES_MAX = 8 * 1024  # path and query
QUERY_PARAMS_MAX = 64
HEADERS_TIMEOUT_S = 15.0  # from the first byte of a request (or the connect) to the end of its headers
BODY_TIMEOUT_S = 30.0  # for a whole single body; for the next bytes of a bulk body
ANSWER_TIMEOUT_S = 60.0  # a client that reads nothing for so long is let go

NESTING_MAX = 100
LINES_MAX = 100_000  # submissions in one bulk request
BULK_BYTES_MAX = 256 * 1024 * 1024
CHUNK_LINES_MAX = 256  # submissions handed to the broker at once
CHUNK_BYTES_MAX = 1024 * 1024
CHUNKS_IN_FLIGHT_MAX = 2
ANSWERS_HELD_BYTES_MAX = 16 * 1024 * 1024  # verdicts that the client has not read yet, per request
DISCARD_BYTES_MAX = 4 * 1024 * 1024  # read and thrown away after a refusal, so that the client sees it
DISCARD_S = 1.0

UPLOADS_MAX = 64  # blobs on their way in at once
UPLOAD_RATE_MIN_B = 16 * 1024  # bytes a second, on average, after the first BODY_TIMEOUT_S
PIECE_BYTES = 1024 * 1024  # of a blob held in memory, each way
REFERENCES_MAX = 64  # blobs that one payload names

WAIT_MAX_S = 60.0
WAITERS_MAX = 20_000  # long polls held at once in this process
RELOOK_S = 3.0  # a waiter looks for itself this often, should a change go unheard

METADATA_ENTRIES_MAX = 64
METADATA_BYTES_MAX = 8 * 1024
IDEMPOTENCY_KEY_LENGTH_MAX = 255
ORDERING_KEY_LENGTH_MAX = 255
ATTEMPTS_CAP = 1_000
HORIZON_S = 366 * 86_400.0  # how far ahead run_at, deadline and ttl may lie
LIST_LIMIT_DEFAULT = 50
LIST_LIMIT_MAX = 500
CANCEL_JOBS_MAX = 10_000  # cancelled by one request; the next one goes on
ERASE_JOBS_MAX = 10_000  # removed by one request; the next one goes on
ERASE_WAIT_MAX_S = 60.0  # for running jobs to end
REDRIVE_MAX = 10_000  # dead letters redriven by one request
ERRORS_MAX = 10  # entries of errors[] in one problem
