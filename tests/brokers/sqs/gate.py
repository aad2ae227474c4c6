"""Gate: an HTTP server before moto's that is as strict as Amazon's where moto is not, and plants faults.

Strict: signatures and their time, ten entries and 1 MiB in a call, characters of XML alone, 12 h of visibility
counted from the receive, 60 s before a deleted queue's name can be used again, 120,000 messages in flight.
"""

import collections
import datetime
import http.client
import itertools
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

KEY, SECRET = "AKIDEXAMPLE", "secret-of-the-tests"
CALL_B_MAX = 1024 * 1024
NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
HELD_MAX_S = 12 * 3600


class Refusal(Exception):
    def __init__(self, code, message="", status=400):
        self.code, self.message, self.status = code, message, status


class Gate:
    """`with Gate(port) as gate`: listens at gate.endpoint; every attribute may be changed while it runs."""

    def __init__(self, port):
        self.port = port
        self.count = collections.Counter()  # calls by verb
        self.calls = []  # (verb, what), as they came
        self.faults = []  # callables (verb, what) -> None or a Refusal or an answer; asked in order
        self.after = []  # callables (verb, what, answer), which may change the answer
        self.denied = set()  # verbs
        self.in_flight_max = 120_000
        self.deleted_s = 60.0
        self.now_s = 0.0  # moved by hand
        self.ahead_s = 0.0  # of the clock of this machine
        self.deleted = {}
        self.received = {}
        self.lock = threading.Lock()

    def __enter__(self):
        gate = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                gate.serve(self)

            def log_message(self, *_):
                pass

            def date_time_string(self, timestamp=None):
                return super().date_time_string(time.time() + gate.ahead_s)

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_):
                pass  # a client that went away

        self.server = Server(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.endpoint = f"http://127.0.0.1:{self.server.server_address[1]}"
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def url(self, prefix="forebay"):
        return f"sqs://eu-central-1/{prefix}?endpoint={self.endpoint}"

    # ---- faults

    def fail(self, verb, code, *, times=1, status=400, message=""):
        """Refuse so many calls of a verb; None stands for every verb."""
        left = itertools.repeat(None) if times is None else iter([None] * times)

        def fault(called, _):
            if verb in (None, called) and next(left, "over") is None:
                return Refusal(code, message, status)

        self.faults.append(fault)

    def fail_entries(self, verb, code, *, which, times=1, fault_of_sender=False):
        """Let some entries of so many calls fail; they do not reach the queue."""
        left = [times]

        def fault(called, what):
            if called == verb and left[0]:
                left[0] -= 1
                bad = [entry for n, entry in enumerate(what["Entries"]) if which(n)]
                what["Entries"] = [entry for n, entry in enumerate(what["Entries"]) if not which(n)]
                what["_failed"] = [
                    {"Id": e["Id"], "Code": code, "Message": "planted", "SenderFault": fault_of_sender}
                    for e in bad
                ]

        self.faults.append(fault)

    # ---- serving

    def serve(self, handler):
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        verb = handler.headers.get("X-Amz-Target", "").rpartition(".")[2]
        try:
            self.check_signature(handler, body)
            what = json.loads(body)
            with self.lock:
                self.count[verb] += 1
                self.calls.append((verb, what))
            status, answer = 200, self.answer(verb, what)
        except Refusal as no:
            status, answer = no.status, {"__type": f"com.amazonaws.sqs#{no.code}", "message": no.message}
        data = json.dumps(answer).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/x-amz-json-1.0")
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def answer(self, verb, what):
        what = dict(what)
        if verb == "ListQueues" or verb in self.denied:
            raise Refusal("AccessDeniedException", f"not authorized to perform: sqs:{verb.lower()}")
        self.check_limits(verb, what)
        for fault in self.faults:
            if (told := fault(verb, what)) is not None:
                if isinstance(told, Refusal):
                    raise told
                return told
        failed = what.pop("_failed", [])
        answer = {} if failed and not what["Entries"] else self.forward(verb, what)
        self.note(verb, what, answer)
        if failed:
            answer["Failed"] = [*answer.get("Failed", []), *failed]
        for change in self.after:
            change(verb, what, answer)
        return answer

    def forward(self, verb, what):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60.0)
        headers = {
            "Content-Type": "application/x-amz-json-1.0",
            "X-Amz-Target": f"AmazonSQS.{verb}",
            "Authorization": f"AWS4-HMAC-SHA256 Credential={KEY}/20260101/eu-central-1/sqs/aws4_request",
        }
        try:
            connection.request("POST", "/", json.dumps(what), headers)
            response = connection.getresponse()
            answer = json.loads(response.read() or b"{}")
        except OSError as error:
            raise Refusal("ServiceUnavailable", str(error), 503) from None
        finally:
            connection.close()
        if response.status != 200:
            raise Refusal(
                answer.get("__type", "").rpartition("#")[2], answer.get("message", ""), response.status
            )
        return answer

    # ---- what Amazon's is strict about

    def check_signature(self, handler, body):
        told = handler.headers.get("Authorization", "")
        at = handler.headers.get("X-Amz-Date", "")
        if f"Credential={KEY}/" not in told:
            raise Refusal(
                "UnrecognizedClientException", "The security token included in the request is invalid.", 403
            )
        then = datetime.datetime.strptime(at, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC).timestamp()
        if abs(time.time() + self.ahead_s - then) > 300:
            raise Refusal("InvalidSignatureException", f"Signature expired: {at} is now earlier than", 403)
        names = re.search(r"SignedHeaders=([^,]+)", told)[1].split(";")
        headers = {name: handler.headers[name] for name in names if name != "host"}
        request = AWSRequest("POST", f"http://{handler.headers['Host']}/", data=body, headers=headers)
        request.context["timestamp"] = at
        auth = SigV4Auth(Credentials(KEY, SECRET), "sqs", "eu-central-1")
        signature = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
        if not told.endswith(f"Signature={signature}"):
            raise Refusal("SignatureDoesNotMatch", "The request signature we calculated does not match", 403)

    def check_limits(self, verb, what):
        entries = what.get("Entries")
        if entries is not None:
            ids = [entry["Id"] for entry in entries]
            if not 1 <= len(entries) <= 10:
                raise Refusal("TooManyEntriesInBatchRequest", str(len(entries)))
            if len(set(ids)) != len(ids):
                raise Refusal("BatchEntryIdsNotDistinct")
        if verb == "SendMessageBatch":
            if sum(len(entry["MessageBody"].encode()) for entry in entries) > CALL_B_MAX:
                raise Refusal("BatchRequestTooLong")
            if any(NOT_XML.search(entry["MessageBody"]) for entry in entries):
                raise Refusal("InvalidMessageContents")
        if verb == "ChangeMessageVisibilityBatch":
            self.check_visibility(entries)
        if verb == "ReceiveMessage":
            if (
                not 0 <= what.get("WaitTimeSeconds", 0) <= 20
                or not 1 <= what.get("MaxNumberOfMessages", 1) <= 10
            ):
                raise Refusal("InvalidParameterValue")
            if self.in_flight_max < 120_000 and self.in_flight(what["QueueUrl"]) >= self.in_flight_max:
                raise Refusal("OverLimit", "too many messages in flight")
        if verb == "CreateQueue" and self.now_s < self.deleted.get(what["QueueName"], -1e9) + self.deleted_s:
            raise Refusal("QueueDeletedRecently", "You must wait 60 seconds after deleting a queue")

    def check_visibility(self, entries):
        for entry in entries:
            held_s = self.now_s - self.received.get(entry["ReceiptHandle"], self.now_s)
            if not 0 <= entry["VisibilityTimeout"] <= HELD_MAX_S - held_s:
                raise Refusal(
                    "InvalidParameterValue", "Total VisibilityTimeout is beyond the limit [43200 seconds]"
                )

    def in_flight(self, queue_url):
        about = self.forward("GetQueueAttributes", {"QueueUrl": queue_url, "AttributeNames": ["All"]})
        return int(about["Attributes"]["ApproximateNumberOfMessagesNotVisible"])

    def note(self, verb, what, answer):
        if verb == "DeleteQueue":
            self.deleted[what["QueueUrl"].rpartition("/")[2]] = self.now_s
        for message in answer.get("Messages", ()) if verb == "ReceiveMessage" else ():
            self.received[message["ReceiptHandle"]] = self.now_s
