"""Messages: what a server tells others that share its store: a doorbell and no more.

Whatever is lost is found by looking.
"""

from typing import Final

import msgspec

from forebay.brokers.shared.news import CHANGES_MAX, News
from forebay.brokers.shared.states import NUMBERS, STATES
from forebay.ports.broker import Change

PAYLOAD_MAX: Final = 7_900  # bytes; PostgreSQL takes 8,000
CHANGES_EACH: Final = 100  # of one message


class Message(msgspec.Struct, array_like=True):
    """One message."""

    sender: str
    work: list[str] = []
    cancels: list[str] = []
    owed: bool = False
    deadly: bool = False
    tasks: list[str] = []  # of the changes
    changes: list[tuple[str, int, int]] = []  # job, its place in tasks, state
    nobodys: bool = False


_decode = msgspec.json.Decoder(Message).decode


def messages_of(news: News, sender: str) -> list[str]:
    """Return the payloads that tell of news; what does not fit is left out."""
    changes = news.changes[:CHANGES_MAX]
    found: list[str] = []
    for begin in range(0, max(1, len(changes)), CHANGES_EACH):
        part = changes[begin : begin + CHANGES_EACH]
        tasks = sorted({change.task for change in part})
        rows = [(change.job_id, tasks.index(change.task), NUMBERS[change.state]) for change in part]
        message = Message(sender, tasks=tasks, changes=rows, nobodys=news.nobodys)
        if not found:
            message.work, message.cancels = sorted(news.work), sorted(news.cancels)
            message.owed, message.deadly = news.owed, news.deadly
        text = msgspec.json.encode(message)
        if len(text) > PAYLOAD_MAX:  # names beyond measure: ring, and say nothing more
            text = msgspec.json.encode(Message(sender, owed=news.owed, deadly=news.deadly))
        found.append(text.decode())
    return found


def news_in(text: bytes) -> News | None:
    """Return what a message tells; None for one that is not understood: another version may say more, and
    anybody who reaches the server may say anything."""
    try:
        return _news_of(_decode(text))
    except (msgspec.MsgspecError, IndexError, UnicodeError, RecursionError):
        return None


def _news_of(message: Message) -> News:
    news = News()
    news.work.update(message.work)
    news.cancels.update(message.cancels)
    news.owed, news.deadly, news.nobodys = message.owed, message.deadly, message.nobodys
    news.changes = [Change(job, message.tasks[task], STATES[state]) for job, task, state in message.changes]
    return news
