"""Which commands a client may say, as a broker knows them."""

from tests.proxy.session.ids.lightproto import Field, Schema

CONNECT, CONNECTED = 2, 3
SUBSCRIBE, PRODUCER, SEND, SEND_RECEIPT, SEND_ERROR, MESSAGE, ACK, FLOW, UNSUBSCRIBE = 4, 5, 6, 7, 8, 9, 10, 11, 12
SUCCESS, ERROR, CLOSE_PRODUCER, CLOSE_CONSUMER, PRODUCER_SUCCESS, PING, PONG, REDELIVER = 13, 14, 15, 16, 17, 18, 19, 20
PARTITIONED_METADATA, PARTITIONED_METADATA_RESPONSE, LOOKUP, LOOKUP_RESPONSE = 21, 22, 23, 24
CONSUMER_STATS, SEEK, GET_LAST_MESSAGE_ID, GET_LAST_MESSAGE_ID_RESPONSE = 25, 28, 29, 30
GET_TOPICS, GET_TOPICS_RESPONSE, GET_SCHEMA, ACK_RESPONSE, NEW_TXN, WATCH_CLOSE = 32, 33, 34, 38, 50, 67
METADATA_ERROR, AUTHORIZATION_ERROR, SERVICE_NOT_READY, PRODUCER_BUSY = 1, 4, 6, 16
CONNECT_THERE, FAILED_LOOKUP = 1, 2
"""What a LOOKUP_RESPONSE says."""
FUTURE = (45, 85)
"""Types that no broker of today knows."""

_ID, _REQUEST = Field("id", "u64", required=True), Field("request", "u64", required=True)
_TOPIC = Field("topic", "text", required=True)


def _needs(*kinds: str) -> Schema:
    """A message of fields without which it is unreadable."""
    return Schema({number: Field(f"of{number}", kind, required=True) for number, kind in enumerate(kinds, start=1)})


def _many(name: str, inside: Schema, *, required: bool = False) -> Field:
    return Field(name, "many", required, inside=inside)


_MESSAGE_ID = Schema({1: _needs("u64")[1], 2: Field("entry", "u64", required=True), 5: Field("ack_set", "packed")})
_MESSAGE_ID[7] = _many("first_chunk", _MESSAGE_ID)
_PROPERTIES = _many("properties", _needs("text", "text"))
_RANGES = Schema({1: Field("mode", "enum", required=True, words=2), 3: _many("ranges", _needs("i32", "i32"))})
_SCHEMA = Schema(
    {
        1: Field("name", "text", required=True),
        3: Field("data", "text", required=True),
        4: Field("type", "enum", required=True, words=22),
        5: _PROPERTIES,
    }
)

_KNOWN: dict[int, dict[int, Field]] = {
    SUBSCRIBE: {
        1: _TOPIC,
        2: Field("subscription", "text", required=True),
        3: Field("sub_type", "enum", required=True, words=4),
        4: _ID,
        5: _REQUEST,
        6: Field("name", "text"),
        9: _many("start", _MESSAGE_ID),
        10: _PROPERTIES,
        12: _many("schema", _SCHEMA),
        17: _many("ranges", _RANGES),
        18: _many("more_properties", _PROPERTIES.inside or Schema()),
        19: Field("epoch", "u64"),
    },
    PRODUCER: {
        1: _TOPIC,
        2: _ID,
        3: _REQUEST,
        4: Field("name", "text"),
        6: _PROPERTIES,
        7: _many("schema", _SCHEMA),
        8: Field("epoch", "u64"),
        10: Field("access", "enum", words=4),
    },
    SEND: {
        1: _ID,
        2: Field("sequence", "u64", required=True),
        3: Field("messages", "i32"),
        9: _many("message_id", _MESSAGE_ID),
    },
    ACK: {
        1: _ID,
        2: Field("ack_type", "enum", required=True, words=2),
        3: _many("ids", _MESSAGE_ID),
        5: _many("properties", _needs("text", "u64")),
        8: Field("request", "u64"),
    },
    FLOW: {1: _ID, 2: Field("permits", "i32", required=True)},
    UNSUBSCRIBE: {1: _ID, 2: _REQUEST, 3: Field("force", "bool")},
    CLOSE_PRODUCER: {1: _ID, 2: _REQUEST},
    CLOSE_CONSUMER: {1: _ID, 2: _REQUEST},
    PING: {},
    PONG: {},
    REDELIVER: {1: _ID, 2: _many("ids", _MESSAGE_ID), 3: Field("epoch", "u64")},
    PARTITIONED_METADATA: {1: _TOPIC, 2: _REQUEST},
    LOOKUP: {1: _TOPIC, 2: _REQUEST, 8: _PROPERTIES},
    CONSUMER_STATS: {1: _REQUEST, 4: _ID},
    SEEK: {1: _ID, 2: _REQUEST, 3: _many("to", _MESSAGE_ID), 4: Field("time", "u64")},
    GET_LAST_MESSAGE_ID: {1: _ID, 2: _REQUEST},
    GET_TOPICS: {1: _REQUEST, 2: Field("namespace", "text", required=True)},
    GET_SCHEMA: {1: _REQUEST, 2: _TOPIC},
    NEW_TXN: {1: _REQUEST},
    WATCH_CLOSE: {1: _REQUEST, 2: _ID},
}
SCHEMAS = {kind: Schema(fields) for kind, fields in _KNOWN.items()}
"""What brokers of today know, by type."""

_TEXT, _ERROR = Field("text", "text", required=True), Field("error", "enum", required=True, words=26)
_FLAGS = Schema({number: Field(f"of{number}", "bool") for number in range(1, 7)})
_MANY = _many("of", _MESSAGE_ID, required=True)
_OTHERS: dict[int, dict[int, Field]] = {
    CONNECT: {1: _TEXT, 10: _many("flags", _FLAGS)},
    CONNECTED: {1: _TEXT, 4: _many("flags", _FLAGS)},
    SEND_RECEIPT: {1: _ID, 2: _REQUEST, 3: _many("message_id", _MESSAGE_ID)},
    SEND_ERROR: {1: _ID, 2: _REQUEST, 3: _ERROR, 4: _TEXT},
    MESSAGE: {1: _ID, 2: _MANY},
    SUCCESS: {1: _REQUEST, 2: _many("schema", _SCHEMA)},
    ERROR: {1: _REQUEST, 2: _ERROR, 3: _TEXT},
    PRODUCER_SUCCESS: {1: _REQUEST, 2: _TEXT},
    PARTITIONED_METADATA_RESPONSE: {2: _REQUEST},
    LOOKUP_RESPONSE: {4: _REQUEST},
    26: {1: _REQUEST},
    27: {1: _ID},
    GET_LAST_MESSAGE_ID_RESPONSE: {1: _MANY, 2: _REQUEST, 3: _many("mark_delete", _MESSAGE_ID)},
    31: {1: _ID},
    GET_TOPICS_RESPONSE: {1: _REQUEST},
    35: {1: _REQUEST, 4: _many("schema", _SCHEMA)},
    ACK_RESPONSE: {1: _ID, 6: Field("request", "u64")},
}
OTHERS = {kind: Schema(fields) for kind, fields in _OTHERS.items()}
"""What brokers read without expecting it from a client: what they need to find there, or they end the connection."""

_NUMBERS = Schema({number: Field(f"number{number}", "u64") for number in range(1, 5)})
OF_THE_FUTURE = (
    SCHEMAS | OTHERS | {GET_TOPICS: Schema(SCHEMAS[GET_TOPICS] | {6: _PROPERTIES})} | dict.fromkeys(FUTURE, _NUMBERS)
)
"""What a broker to come knows besides: fields, and commands in which every number may be a request id."""

FOLLOWED = frozenset(
    {
        *(PRODUCER, SUBSCRIBE, CLOSE_PRODUCER, CLOSE_CONSUMER, UNSUBSCRIBE, SEEK),
        *(LOOKUP, PARTITIONED_METADATA, GET_TOPICS),
    }
)
"""What Sluice acts on, and so asks in its own name."""

ANSWERS = frozenset(
    {
        *(SUCCESS, ERROR, PRODUCER_SUCCESS, LOOKUP_RESPONSE, PARTITIONED_METADATA_RESPONSE),
        *(GET_TOPICS_RESPONSE, GET_LAST_MESSAGE_ID_RESPONSE, ACK_RESPONSE),
    }
)
"""What carries a request id back."""
