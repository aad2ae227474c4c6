"""The errors of sources."""

from forebay.errors import ForebayError


class SourceError(ForebayError):
    """The source of a stream failed."""

    code, status, title = "source_failed", 502, "Source failed"


class SourceStalledError(SourceError):
    """The source gave nothing for longer than it may."""

    code, status, title = "source_stalled", 504, "Source stalled"


class SinkError(ForebayError):
    """Where results go failed."""

    code, status, title = "sink_failed", 502, "Sink failed"
