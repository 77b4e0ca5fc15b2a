"""What fake engines say: tokens that name their request, and errors in vLLM's shape."""

import re
import time

MARK = re.compile(r"mk-[0-9a-f]{8}")
now = time.monotonic


def token(marker, i):
    """The i-th token that an engine makes for the request carrying `marker`; every third has non-ASCII text."""
    return f" {marker}.{i}" + ("\u65e5\u672c\u00e9" if i % 3 == 2 else "")


def err(status, message, typ=None, param=None):
    names = {400: "BadRequestError", 404: "NotFoundError", 429: "RateLimitError", 503: "ServiceUnavailableError"}
    return {
        "error": {
            "message": message,
            "type": typ or names.get(status, "InternalServerError"),
            "param": param,
            "code": status,
        }
    }
