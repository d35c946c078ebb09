"""Bounds of SQS: those that Amazon documents, and those that keep a hostile request small."""

import re

from skidway.limits import KIB, MIB

BATCH_ENTRIES_MAX = 10
MESSAGE_BYTES_MAX = 1 * MIB
"""Body and attributes of a message, and of all messages of one request."""
MESSAGE_BYTES_MIN = 1 * KIB
"""The least that a queue's MaximumMessageSize may be."""
ATTRIBUTES_PER_MESSAGE_MAX = 10
DELAY_S_MAX = 900
VISIBILITY_S_MAX = 43_200
WAIT_S_MAX = 20
RETENTION_S_MIN = 60
RETENTION_S_MAX = 1_209_600
RECEIVE_COUNT_MAX = 1_000
RECEIVED_MAX = 10
NAME_LENGTH_MAX = 80
ID_LENGTH_MAX = 128
"""Of a message group, a de-duplication id, a receive attempt."""
ATTRIBUTE_NAME_LENGTH_MAX = 256
LISTED_MAX = 1_000
MOVES_LISTED_MAX = 10
MOVES_PER_SECOND_MAX = 500
MOVES_MAX = 100
"""Tasks that one node runs at a time."""
TAGS_MAX = 50
TAG_KEY_LENGTH_MAX = 128
TAG_VALUE_LENGTH_MAX = 256
PERMITTED_ACTIONS_MAX = 7
LABEL_LENGTH_MAX = 80
SOURCE_ARNS_MAX = 10
POLICY_BYTES_MAX = 8 * KIB
"""What the metadata keeps of a queue should stay small."""

REQUEST_BYTES_MAX = 7 * MIB
"""A message of the largest size, with every byte written as an escape sequence."""
PARAMETERS_MAX = 1_000
"""Of a request in the Query protocol. A full batch with all its attributes has less than half."""
PARAMETER_PARTS_MAX = 8
JSON_TOKENS_MAX = 20_000
"""Brackets and commas outside of strings in a request in JSON."""
NAMES_MAX = 1_000
"""Attribute names that a request may list."""

ACCOUNT = re.compile(r"[0-9]{12}")
REGION = re.compile(r"[a-z0-9-]{1,32}")
QUEUE_NAME = re.compile(r"[A-Za-z0-9_-]{1,75}\.fifo|[A-Za-z0-9_-]{1,80}")
ANY_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""Of a queue that another door may have created: what a topic may be called."""
ENTRY_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")
LABEL = re.compile(r"[A-Za-z0-9_-]{1,80}")
ID = re.compile(r"""[A-Za-z0-9!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]{1,128}""")
