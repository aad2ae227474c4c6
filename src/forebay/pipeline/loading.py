"""Find the Pipeline named FILE_OR_MODULE[:pipeline], and the source that a text means."""

from typing import Any

from forebay.child.loading import LoadError, load_module, split_reference
from forebay.errors import AppError, ConfigError, InvalidError
from forebay.pipeline.pipeline import Pipeline


def load_pipeline(reference: str) -> Pipeline:
    """Return the pipeline. Raises AppError with one line."""
    place, attribute = split_reference(reference)
    try:
        module = load_module(place)
    except LoadError as error:
        raise AppError(f"{error}{f' ({error.where})' if error.where else ''}") from None
    found = {name: value for name, value in vars(module).items() if isinstance(value, Pipeline)}
    if attribute:
        if not hasattr(module, attribute):
            raise AppError(f"{place}: it has no {attribute}")
        if attribute not in found:
            kind = type(getattr(module, attribute)).__name__
            raise AppError(f"{place}: {attribute} is a {kind}, not a forebay.Pipeline")
        return found[attribute]
    if "pipeline" in found:
        return found["pipeline"]
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        first = next(iter(found))
        raise AppError(f"{place}: several pipelines ({', '.join(found)}); name one, like {place}:{first}")
    raise AppError(f"{place}: no forebay.Pipeline in it; write pipeline = forebay.Pipeline(...)")


def source_of_text(text: str, push_token: str | None = None) -> Any:
    """Return the source of "clip.mp4", "rtsp://…" or "kafka://host:9092/topic", each also after "name=", the
    name of its stream, or of "push://127.0.0.1:8090", where others send, who show `push_token` if there is
    one. Raises ForebayError with one line.
    """
    from forebay import sources

    stream, equals, address = text.partition("=")
    if not (equals and stream.replace("-", "").replace("_", "").isalnum()):
        stream, address = "", text
    if address.startswith(("rtsp://", "rtsps://")):
        return sources.rtsp(address, stream=stream or None)
    if address.startswith("kafka://"):
        servers, _, topic = address.removeprefix("kafka://").partition("/")
        return sources.kafka(servers, topic, stream=stream or None)
    if address.startswith("push://"):
        return _pushed(address, stream, push_token)
    return sources.ffmpeg(address, stream=stream or None)


def _pushed(address: str, stream: str, token: str | None) -> Any:
    from forebay import sources
    from forebay.server.listener import is_loopback

    host, _, port = address.removeprefix("push://").rpartition(":")
    host = host.strip("[]")
    if not host or not (port.isascii() and port.isdecimal()) or len(port) > 5 or int(port) > 65_535:
        raise InvalidError(f"a push source is push://HOST:PORT, not {address!r:.80}")
    if token is None and not is_loopback(host):
        raise ConfigError(
            f"{address:.80} can be reached from elsewhere: set a token that senders show, FOREBAY_PUSH_TOKEN"
        )
    return sources.push(host=host, port=int(port), streams=[stream] if stream else None, token=token)
