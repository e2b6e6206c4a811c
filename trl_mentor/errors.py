"""The errors of the package.

    MentorError
    ├── ConfigError          a setting is wrong; raised at construction, also a ValueError
    │   └── TemplateError    a template is missing, does not parse, or names an unknown slot
    ├── ContractError        the installed TRL is not the one this package was tested with
    ├── BackendError         the mentor's endpoint failed or ran out of time
    └── ReplyError           the mentor answered, but not in a form its role can use

`BackendError` and `ReplyError` are data for `Mentor`, which turns them into a retry, a fallback hint or an untouched
group. They never reach a training step.
"""


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


class ReplyError(MentorError):
    """The mentor's reply is empty, cut off, contradictory, or outside the set of allowed values."""
