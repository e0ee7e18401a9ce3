"""The root command and its border: failures become a message and an exit code here, and nowhere else."""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import click

from neuroscope.cli.cache import cache
from neuroscope.cli.calibrate import calibrate
from neuroscope.cli.chat import chat
from neuroscope.cli.corpus import corpus
from neuroscope.cli.diff import diff
from neuroscope.cli.doctor import doctor
from neuroscope.cli.features import features
from neuroscope.cli.labels import labels
from neuroscope.cli.record import record
from neuroscope.cli.report import report
from neuroscope.cli.serve import serve
from neuroscope.cli.session import session
from neuroscope.cli.verify import verify
from neuroscope.cli.watch import watch
from neuroscope.cli.weights import models, sae
from neuroscope.disk import disk_failure, unwritten
from neuroscope.errors import NeuroscopeError

PROGRAM = "neuroscope"
INTERRUPTED = 130


@click.group(PROGRAM, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="neuroscope-sae", prog_name=PROGRAM)
@click.option("--debug", is_flag=True, help="Show the traceback of a failure.")
def app(debug: bool) -> None:
    """Shows what a language model is thinking while it writes: sparse-autoencoder features, named, per token.

    \b
    A first run that needs no account:
      export NEUROSCOPE_PAIRING=smollm2-135m
      neuroscope labels generate && neuroscope serve
    """


@app.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a completion script, to be run by the shell: eval "$(neuroscope completion bash)"."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise NeuroscopeError(f"click knows no completion for {shell}.")
    script = kind(app, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE")
    # click's own `source()` refuses an old bash; the script itself works from 4.4 on and says nothing else.
    click.echo(script.source_template % script.source_vars())


for command in (
    doctor,
    serve,
    chat,
    watch,
    features,
    record,
    session,
    diff,
    models,
    sae,
    cache,
    corpus,
    calibrate,
    labels,
    report,
    verify,
):
    app.add_command(command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code; never raises."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words or bool(os.environ.get("NEUROSCOPE_DEBUG"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a label may hold what the terminal's encoding lacks
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app.main(words, prog_name=PROGRAM, standalone_mode=False)
        if sys.stdout is not None:  # closed by the caller: >&-
            sys.stdout.flush()
    except Exception as error:  # the border: a bug is told in one line, and whole with --debug
        return _failed(error, debug)
    except SystemExit:  # click's own answer to a reader of our output that left
        return 0
    except KeyboardInterrupt:
        click.echo("Interrupted.", err=True)
        return INTERRUPTED
    return code if isinstance(code, int) else 0


def _failed(error: Exception, debug: bool) -> int:
    """Tells a failure on stderr, and returns its exit code."""
    if isinstance(error, BrokenPipeError):
        # The reader of our output left (`| head`): nothing is wrong, and nothing may be written any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if isinstance(error, click.Abort):
        click.echo("Interrupted.", err=True)
        return INTERRUPTED
    if isinstance(error, click.ClickException):
        error.show()
        return error.exit_code
    if debug:
        traceback.print_exception(error)
    told = _expected(error) or f"unexpected {type(error).__name__}: {error} (--debug shows where)"
    click.echo(f"{PROGRAM}: {told}", err=True)
    return 1


def _expected(error: Exception) -> str | None:
    """The message of a failure that is no bug."""
    if isinstance(error, NeuroscopeError):
        return str(error)
    if not isinstance(error, OSError):
        return None
    if isinstance(error.filename, str):
        failure = disk_failure(error, Path(error.filename).parent) or unwritten(error)
        return None if failure is None else str(failure)
    if error.errno == errno.ENOSPC:
        return "The output could not be written: no space is left where it goes."
    return None
