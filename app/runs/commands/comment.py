"""`coalmine comment`: puts the comment that `coalmine check` wrote on the pull request of the CI job."""

import os
from pathlib import Path
from typing import Annotated

import typer

from app import USER_AGENT
from app.base.commands import examples, note
from app.base.errors import InvalidInputError, Problem
from app.runs.client import PullRequest

app = typer.Typer(rich_markup_mode=None)


@app.command(
    epilog=examples(
        "coalmine check canaries --baseline before.json --output comment=comment.md; coalmine comment comment.md"
    )
)
def comment(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A comment, as `coalmine check` writes it.")],
) -> None:
    """Put a comment on the pull request or merge request of this CI job, or renew the one that is there.

    The job is known by the variables of GitHub Actions or GitLab CI. GITHUB_TOKEN or GITLAB_TOKEN must hold a token
    that may comment. A job without a pull request is left alone. Exit code 2: it was refused.
    """
    body = file.read_text(encoding="utf-8")
    marker = body.partition("\n")[0]
    if not marker.startswith("<!-- coalmine: "):
        message = "is no comment of `coalmine check --output comment=FILE`"
        raise InvalidInputError([Problem(file=str(file), message=message)])
    request = PullRequest.of_job(os.environ, USER_AGENT)
    if request is None:
        note("This job has no pull request; nothing to comment on.")
        return
    is_new = request.put_comment(marker, body)
    note("The comment was written." if is_new else "The comment was renewed.")
