"""Comments on the pull request of GitHub, or the merge request of GitLab, in whose CI job this runs."""

import json
import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

from app.base.addresses import AddressPolicy
from app.base.errors import CoalmineError, ConfigurationError
from app.base.net.transfer import Request, header_line
from app.base.net.transport import send_one
from app.base.values import Value

_ANY_ADDRESS: Final = AddressPolicy(name="server", deny_private=False)
_SECONDS: Final = 30.0
_PAGE, _MOST_PAGES = 100, 30
_LARGEST: Final = 20_000_000
_BELONGS: Final = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})
_MERGE_REF: Final = re.compile(r"refs/pull/(\d+)/")


class PullRequest(Value):
    """Where the comments of a pull request are."""

    list_url: str
    """Comments are listed and made here."""
    edit_url: str
    """A comment is changed here, by its id behind it."""
    edit_method: str
    headers: Mapping[str, str]
    user_url: str = ""
    """Who the token is, for GitLab; GitHub says beside each comment whether its author belongs to the repository."""

    @classmethod
    def of_job(cls, environment: Mapping[str, str], user_agent: str) -> Self | None:
        """Return the pull request of a CI job, by the variables that GitHub or GitLab sets; None = it has none.

        Raises ConfigurationError where it has one and no token is given.
        """
        common = {"user-agent": user_agent, "content-type": "application/json"}
        number = _github_number(environment)
        if number is not None:
            base = environment.get("GITHUB_API_URL") or "https://api.github.com"
            issues = f"{base}/repos/{quote(environment['GITHUB_REPOSITORY'], safe='/')}/issues"
            token = _token(environment, "GITHUB_TOKEN")
            accept = {"accept": "application/vnd.github+json", "x-github-api-version": "2022-11-28"}
            return cls(
                list_url=f"{issues}/{number}/comments",
                edit_url=f"{issues}/comments",
                edit_method="PATCH",
                headers={**common, **accept, "authorization": f"Bearer {token}"},
            )
        merge_request = environment.get("CI_MERGE_REQUEST_IID")
        if merge_request:
            project = f"{environment['CI_API_V4_URL']}/projects/{quote(environment['CI_PROJECT_ID'], safe='')}"
            notes = f"{project}/merge_requests/{quote(merge_request, safe='')}/notes"
            headers = {**common, "private-token": _token(environment, "GITLAB_TOKEN")}
            user = f"{environment['CI_API_V4_URL']}/user"
            return cls(list_url=notes, edit_url=notes, edit_method="PUT", headers=headers, user_url=user)
        return None

    def put_comment(self, marker: str, body: str) -> bool:
        """Change the comment whose first line is the marker, or make it; gives whether it is new.

        One of a stranger is left alone: its author could change what it says afterwards. Raises CoalmineError where
        that is refused; no message holds the token.
        """
        content = {"body": body}
        for comment in self._comments():
            if str(comment.get("body") or "").startswith(marker) and self._may_be_ours(comment):
                self._call(self.edit_method, f"{self.edit_url}/{int(comment['id'])}", content)
                return False
        self._call("POST", self.list_url, content)
        return True

    def _may_be_ours(self, comment: Mapping[str, Any]) -> bool:
        if not self.user_url:
            kind = (comment.get("user") or {}).get("type")
            return kind == "Bot" or comment.get("author_association") in _BELONGS
        own = self._call("GET", self.user_url, None)
        return isinstance(own, dict) and own.get("id") == (comment.get("author") or {}).get("id")

    def _comments(self) -> Iterator[Mapping[str, Any]]:
        for page in range(1, _MOST_PAGES + 1):
            found = self._call("GET", f"{self.list_url}?per_page={_PAGE}&page={page}", None)
            if not isinstance(found, list):
                raise CoalmineError("comments were answered in a form that cannot be read")
            yield from (one for one in found if isinstance(one, dict) and isinstance(one.get("id"), int))
            if len(found) < _PAGE:
                return

    def _call(self, method: str, url: str, content: Any) -> Any:
        request = Request(
            url=url,
            method=method,
            headers=tuple(header_line(name, value) for name, value in self.headers.items()),
            body=None if content is None else json.dumps(content).encode(),
            timeout_seconds=_SECONDS,
            max_body_bytes=_LARGEST,
        )
        answer = send_one(request, policy=_ANY_ADDRESS)
        if answer.status not in {HTTPStatus.OK, HTTPStatus.CREATED}:
            said = answer.detail or (f"answered {answer.status}" if answer.status else str(answer.failure))
            raise CoalmineError(f"the comment was not written: {url.partition('?')[0]} {said}")
        try:
            return json.loads(answer.body)
        except ValueError as error:
            raise CoalmineError("comments were answered in a form that cannot be read") from error


def _github_number(environment: Mapping[str, str]) -> int | None:
    """Return the number of the pull request of a job of GitHub, by its event or its ref."""
    if not environment.get("GITHUB_REPOSITORY"):
        return None
    ref = _MERGE_REF.match(environment.get("GITHUB_REF", ""))
    if ref is not None:
        return int(ref[1])
    try:
        event = json.loads(Path(environment.get("GITHUB_EVENT_PATH", "")).read_bytes())
        return int(event["pull_request"]["number"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _token(environment: Mapping[str, str], name: str) -> str:
    token = environment.get(name, "").strip()
    if not token:
        raise ConfigurationError(f"{name} is not set; it must hold a token that may comment")
    return token
