"""Topics: made where they are missing, removed when they are forgotten, and how many messages of one wait."""

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from forebay.brokers.kafka.address import Address, kafka_module, told
from forebay.brokers.kafka.sending import Sender, common, gone_codes
from forebay.errors import DeliveryUnavailableError

ASK_MAX_S: Final = 5.0  # for one question to the brokers


class Topics:
    """What is asked of the brokers about topics. Raises DeliveryUnavailableError in every verb."""

    def __init__(self, address: Address, sender: Sender) -> None:
        self._kafka = kafka_module()
        self._address, self._sender = address, sender
        self._admin: Any = self._kafka.admin.AdminClient(common(address))
        # A consumer's questions make no topic; a producer's do, where the brokers are set so.
        self._looker: Any = self._kafka.Consumer({**common(address), "group.id": address.prefix})
        self._made: set[str] = set()
        self._making = asyncio.Lock()

    async def look(self, wait_s: float = ASK_MAX_S) -> None:
        """Return when a broker answers."""
        await self._metadata(self._looker.list_topics, self._address.prefix, wait_s)

    async def make(self, topic: str, *, partitions: int | None = None) -> None:
        """See that a topic is there; make it where it is missing."""
        if topic in self._made:
            return
        async with self._making:
            if topic not in self._made:
                await self._make(topic, partitions or self._address.partitions)
                self._made.add(topic)

    def close(self) -> None:
        """Let go of the connections. Blocks."""
        self._looker.close()

    def gone(self, topic: str) -> None:
        """Somebody removed it: it is made again when it is used."""
        self._made.discard(topic)

    async def _make(self, topic: str, partitions: int) -> None:
        refused = None
        if self._address.makes:
            refused = await self._created(topic, partitions)
            if refused is None:
                return
        # Who may not make topics may use what others made, or the brokers make by themselves.
        found = (await self._metadata(self._sender.topics, topic, ASK_MAX_S)).topics[topic]
        if found.error is not None or not found.partitions:
            why = told(refused or found.error or "it has no partitions")
            raise DeliveryUnavailableError(f"{self._address.label}: topic {topic}: {why}")

    async def _created(self, topic: str, partitions: int) -> Any:
        """Return why not, None when it is there."""
        new = self._kafka.admin.NewTopic(
            topic,
            num_partitions=partitions,
            replication_factor=self._address.replicas,
            config={
                "retention.ms": str(math.ceil(self._address.retention_s * 1000)),
                "cleanup.policy": "delete",
            },
        )
        try:
            futures = self._admin.create_topics([new], request_timeout=ASK_MAX_S)
            await self._answer(futures[topic])
        except self._kafka.KafkaException as error:
            if error.args[0].code() != self._kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                return error
        return None

    async def remove(self, topic: str, group: str | None) -> None:
        """Remove a topic, and how far a group has read; return when both are gone, or are not there.

        Nothing is removed where topics are made by others.
        """
        self._made.discard(topic)
        if not self._address.makes:
            return
        try:
            await self._answer(self._admin.delete_topics([topic], request_timeout=ASK_MAX_S)[topic])
        except self._kafka.KafkaException as error:
            if error.args[0].code() not in gone_codes(self._kafka):
                raise self._refused(error) from None
        if group is not None:
            try:
                futures = self._admin.delete_consumer_groups([group], request_timeout=ASK_MAX_S)
                await self._answer(futures[group])
            except self._kafka.KafkaException:
                return  # others still read: brokers drop the place of a topic that is gone

    async def depth(self, topic: str, group: str) -> int:
        """Return how many messages a group has not read; 0 where there is no such topic."""
        found = (await self._metadata(self._looker.list_topics, topic, ASK_MAX_S)).topics[topic]
        if found.error is not None and found.error.code() in gone_codes(self._kafka):
            return 0
        numbers = list(found.partitions)
        try:
            read = await self._read(topic, numbers, group)
            ends = await self._offsets(topic, numbers, self._kafka.admin.OffsetSpec.latest())
            begins = await self._offsets(topic, numbers, self._kafka.admin.OffsetSpec.earliest())
        except self._kafka.KafkaException as error:
            if error.args[0].code() in gone_codes(self._kafka):
                return 0
            raise self._refused(error) from None
        return sum(max(0, ends[at] - max(begins[at], read.get(at, 0))) for at in numbers)

    async def _read(self, topic: str, numbers: list[int], group: str) -> dict[int, int]:
        partitions = [self._kafka.TopicPartition(topic, number) for number in numbers]
        asked = self._kafka.ConsumerGroupTopicPartitions(group, partitions)
        futures = self._admin.list_consumer_group_offsets([asked], request_timeout=ASK_MAX_S)
        answer = await self._answer(futures[group])
        return {one.partition: one.offset for one in answer.topic_partitions if one.offset >= 0}

    async def _offsets(self, topic: str, numbers: list[int], spec: Any) -> dict[int, int]:
        asked = {self._kafka.TopicPartition(topic, number): spec for number in numbers}
        futures: Mapping[Any, Any] = self._admin.list_offsets(asked, request_timeout=ASK_MAX_S)
        return {at.partition: (await self._answer(future)).offset for at, future in futures.items()}

    async def _metadata(self, asks: Callable[[str, float], Any], topic: str, wait_s: float) -> Any:
        try:
            return await asyncio.to_thread(asks, topic, wait_s)
        except self._kafka.KafkaException as error:
            raise self._refused(error) from None

    async def _answer(self, future: Any) -> Any:
        try:
            async with asyncio.timeout(ASK_MAX_S + 2.0):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise DeliveryUnavailableError(f"{self._address.label}: no answer in time") from None

    def _refused(self, error: Exception) -> DeliveryUnavailableError:
        says = self._sender.says
        why = told(error)
        return DeliveryUnavailableError(f"{self._address.label}: {why}" + (f" ({says})" if says else ""))
