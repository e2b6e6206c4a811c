"""The errors of the package.

    MentorError
    ├── ConfigError          a setting is wrong; raised at construction, also a ValueError
    │   └── TemplateError    a template is missing, does not parse, or names an unknown slot
    ├── ContractError        the installed TRL is not the one this package was tested with
    ├── BackendError         the mentor's endpoint failed or ran out of time
    │   ├── RequestRefusedError  the endpoint works and refused this one request, for example because it is too long
    │   ├── AccessDeniedError    the endpoint does not accept the key
    │   └── NotAskedError         nothing was asked, on purpose; no more will be for this group
    │       ├── EndpointPausedError   every endpoint is left alone for now
    │       └── BudgetSpentError      a limit of the budget is reached
    └── ReplyError           the mentor answered, but not in a form its role can use
        └── DoubtfulReplyError   the reply says two things, and one of them may be quoted

`BackendError` and `ReplyError` are data for `Mentor`, which turns them into a retry, a fallback hint or an untouched
group. They never reach a training step.
"""

from trl_mentor.records import Usage


class MentorError(Exception):
    """Base class of every error this package raises on purpose."""


class ConfigError(MentorError, ValueError):
    """A setting is wrong. The message says what was got, what was expected and what to do."""


class TemplateError(ConfigError):
    """A prompt template is missing, does not parse, or uses a slot that its role does not fill."""


class ContractError(MentorError):
    """The installed TRL does not have the private interface that this version was tested against."""


class BackendError(MentorError):
    """The mentor's endpoint could not be reached, refused the request, or exceeded its time."""

    endpoint: str | None = None
    """Which of several endpoints failed."""
    requests: int = 1
    """Requests that were made, with those that repeat a failed one."""
    usage: Usage = Usage()
    """Tokens that the endpoint counted all the same, as for a reply that nobody can use."""


class RequestRefusedError(BackendError):
    """The endpoint works but does not take this request; another one may well succeed."""


class AccessDeniedError(BackendError):
    """The endpoint does not accept the key; no request will succeed until that is changed."""


class NotAskedError(BackendError):
    """No request was made, on purpose; the group ends without a hint, which is no failure. The message says why."""

    requests = 0


class EndpointPausedError(NotAskedError):
    """Every endpoint failed too often lately and is left alone for a while; no request was made."""


class BudgetSpentError(NotAskedError):
    """A limit of the budget is reached; the message names it."""

    def __init__(self, message: str, limit: str = "") -> None:
        super().__init__(message)
        self.limit = limit


class ReplyError(MentorError):
    """The mentor's reply is empty, cut off, contradictory, or outside the set of allowed values."""


class DoubtfulReplyError(ReplyError):
    """The reply says two things, one of which it may have quoted. It counts as refused; nobody asks what was meant."""
