"""librdkafka's own mock cluster as a process: prints its address, then does what lines on its standard input say.

A line is JSON: [verb, numbers or names …]; `done` answers each.
"""

import ctypes
import json
import sys
from pathlib import Path

import confluent_kafka

BROKERS = 2
PRODUCE, GROUP_JOIN, FIND_COORDINATOR = 0, 11, 10


def library():
    found = sorted(Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka.libs/librdkafka*.so*"))
    assert found, "the wheel of confluent-kafka has no librdkafka beside it"
    loaded = ctypes.CDLL(str(found[0]))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(loaded, name).restype = ctypes.c_void_p
    loaded.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return loaded


def main():
    lib = library()
    errors = ctypes.create_string_buffer(512)
    client = ctypes.c_void_p(lib.rd_kafka_new(0, ctypes.c_void_p(lib.rd_kafka_conf_new()), errors, 512))
    cluster = ctypes.c_void_p(lib.rd_kafka_mock_cluster_new(client, BROKERS))
    lib.rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, 100)
    print(lib.rd_kafka_mock_cluster_bootstraps(cluster).decode(), flush=True)
    brokers = range(1, BROKERS + 1)
    for line in sys.stdin:
        verb, *numbers = json.loads(line)
        if verb == "down":
            failed = [lib.rd_kafka_mock_broker_set_down(cluster, one) for one in brokers]
        elif verb == "up":
            failed = [lib.rd_kafka_mock_broker_set_up(cluster, one) for one in brokers]
        elif verb == "rtt":
            failed = [lib.rd_kafka_mock_broker_set_rtt(cluster, one, numbers[0]) for one in brokers]
        elif verb == "clear":
            for kind in (PRODUCE, GROUP_JOIN, FIND_COORDINATOR):
                lib.rd_kafka_mock_clear_request_errors(cluster, kind)
            failed = []
        elif verb == "topic":
            lib.rd_kafka_mock_topic_create(cluster, numbers[0].encode(), 1, 1)
            lib.rd_kafka_mock_topic_set_error(cluster, numbers[0].encode(), numbers[1])
            failed = []
        else:  # errors: of a kind of request, the next ones
            kind, *codes = numbers
            array = (ctypes.c_int * len(codes))(*codes)
            lib.rd_kafka_mock_push_request_errors_array(cluster, kind, ctypes.c_size_t(len(codes)), array)
            failed = []
        print("failed" if any(failed) else "done", flush=True)


if __name__ == "__main__":
    main()
