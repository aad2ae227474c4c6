"""Runs moto's server: `python moto_server.py PORT`; its SQS looks at every message of a queue several times for each
call, so the two functions that this costs most are replaced by ones that say the same."""

import sys
import time

from moto.server import main
from moto.sqs import models


def _valid(backend, queue_name, message):
    return (
        float(backend.queues[queue_name].message_retention_period) + message.sent_timestamp / 1000
        > time.time()
    )


if __name__ == "__main__":
    models.unix_time_millis = lambda: time.time() * 1000
    models.SQSBackend.is_message_valid_based_on_retention_period = _valid
    main(["-H", "127.0.0.1", "-p", sys.argv[1]])
