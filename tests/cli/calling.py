"""A command as the tests of the command line run it: in this process."""

from forebay.cli.edge import run


def calls(capsys, *before):
    """Return a function that runs a command that begins with `before` and returns (exit code, out, err)."""

    def call(*argv):
        code = run((*before, *argv))
        out, err = capsys.readouterr()
        assert "Traceback" not in err and "internal error" not in err
        return code, out, err

    return call
