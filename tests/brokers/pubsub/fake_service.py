"""A Pub/Sub of a few lines as a process: publish, pull, acknowledge, deadlines, deletion; for machines that have
no emulator. `python fake_service.py PORT`; what it holds ends with it.
"""

import asyncio
import itertools
import sys

import grpc
from google.protobuf.empty_pb2 import Empty
from google.pubsub_v1 import types
from grpc import StatusCode

PULL_WAIT_S = 1.0


class Subscription:
    def __init__(self, asked):
        self.asked = asked
        self.waiting = []
        self.taken = {}  # ack id -> message, when it comes again


class Service:
    def __init__(self):
        self.topics, self.subscriptions = {}, {}
        self.numbers = itertools.count(1)

    def now(self):
        return asyncio.get_running_loop().time()

    async def topic(self, name, context):
        if name not in self.topics:
            await context.abort(StatusCode.NOT_FOUND, "Topic not found")
        return self.topics[name]

    async def subscription(self, name, context):
        if name not in self.subscriptions:
            await context.abort(StatusCode.NOT_FOUND, "Subscription does not exist")
        return self.subscriptions[name]

    async def CreateTopic(self, asked, context):
        if asked.name in self.topics:
            await context.abort(StatusCode.ALREADY_EXISTS, "Topic already exists")
        self.topics[asked.name] = asked
        return asked

    async def ListTopics(self, asked, context):
        if asked.project == "projects/forbidden":
            await context.abort(StatusCode.PERMISSION_DENIED, "User not authorized to perform this action.")
        if asked.project == "projects/unknown":
            await context.abort(
                StatusCode.NOT_FOUND, "Requested project not found or user does not\nhave access"
            )
        return types.ListTopicsResponse()

    async def DeleteTopic(self, asked, context):
        await self.topic(asked.topic, context)
        del self.topics[asked.topic]
        for one in self.subscriptions.values():
            if one.asked.topic == asked.topic:
                one.asked.topic = "_deleted-topic_"
        return Empty()

    async def Publish(self, asked, context):
        await self.topic(asked.topic, context)
        ids = [str(next(self.numbers)) for _ in asked.messages]
        for one in self.subscriptions.values():
            if one.asked.topic == asked.topic:
                one.waiting += [bytes(message.data) for message in asked.messages]
        return types.PublishResponse(message_ids=ids)

    async def CreateSubscription(self, asked, context):
        await self.topic(asked.topic, context)
        if asked.name in self.subscriptions:
            await context.abort(StatusCode.ALREADY_EXISTS, "Subscription already exists")
        self.subscriptions[asked.name] = Subscription(asked)
        return asked

    async def GetSubscription(self, asked, context):
        return (await self.subscription(asked.subscription, context)).asked

    async def DeleteSubscription(self, asked, context):
        await self.subscription(asked.subscription, context)
        del self.subscriptions[asked.subscription]
        return Empty()

    async def Pull(self, asked, context):
        one = await self.subscription(asked.subscription, context)
        ends_at = self.now() + PULL_WAIT_S
        while self.now() < ends_at:
            for ack_id, (data, at) in list(one.taken.items()):
                if at <= self.now():
                    del one.taken[ack_id]
                    one.waiting.append(data)
            if one.waiting:
                break
            await asyncio.sleep(0.01)
        received = []
        for data in one.waiting[: asked.max_messages]:
            ack_id = f"ack-{next(self.numbers)}"
            one.taken[ack_id] = (data, self.now() + one.asked.ack_deadline_seconds)
            message = types.PubsubMessage(data=data, message_id=ack_id)
            received.append(types.ReceivedMessage(ack_id=ack_id, message=message))
        del one.waiting[: asked.max_messages]
        return types.PullResponse(received_messages=received)

    async def Acknowledge(self, asked, context):
        one = await self.subscription(asked.subscription, context)
        for ack_id in asked.ack_ids:
            one.taken.pop(ack_id, None)
        return Empty()

    async def ModifyAckDeadline(self, asked, context):
        one = await self.subscription(asked.subscription, context)
        for ack_id in asked.ack_ids:
            if ack_id in one.taken:
                one.taken[ack_id] = (one.taken[ack_id][0], self.now() + asked.ack_deadline_seconds)
        return Empty()


VERBS = {
    "Publisher": {
        "CreateTopic": types.Topic, "ListTopics": types.ListTopicsRequest,
        "DeleteTopic": types.DeleteTopicRequest, "Publish": types.PublishRequest,
    },
    "Subscriber": {
        "CreateSubscription": types.Subscription, "GetSubscription": types.GetSubscriptionRequest,
        "DeleteSubscription": types.DeleteSubscriptionRequest, "Pull": types.PullRequest,
        "Acknowledge": types.AcknowledgeRequest, "ModifyAckDeadline": types.ModifyAckDeadlineRequest,
    },
}  # fmt: skip


def written(answer):
    return answer.SerializeToString() if isinstance(answer, Empty) else type(answer).serialize(answer)


async def main(port):
    service, server = Service(), grpc.aio.server()
    for name, verbs in VERBS.items():
        handlers = {
            verb: grpc.unary_unary_rpc_method_handler(
                getattr(service, verb), request_deserializer=asked.deserialize, response_serializer=written
            )
            for verb, asked in verbs.items()
        }
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(f"google.pubsub.v1.{name}", handlers),)
        )
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
