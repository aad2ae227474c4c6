"""Trust: the files of a URL that say whose certificates are accepted, and who we are."""

import ssl

from forebay.errors import ConfigError


def context_of(
    names: str,
    *,
    ca_file: str | None,
    ca_path: str | None = None,
    cert_file: str | None,
    key_file: str | None,
) -> ssl.SSLContext:
    """Return what TLS goes by. `names`: the words of the URL. Raises ConfigError with one line."""
    try:
        context = ssl.create_default_context(cafile=ca_file, capath=ca_path)
        if cert_file is not None:
            context.load_cert_chain(cert_file, key_file)
    except (OSError, ValueError) as error:  # ssl's errors are OSErrors
        text = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ConfigError(f"broker: a file of the URL's {names}: {text}") from None
    return context


def not_accepted(error: BaseException | None) -> str | None:
    """Return a line for a certificate that is not accepted, None for every other error."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    return None
