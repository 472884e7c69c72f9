"""Which commands a client may say, as a broker knows them."""

from tests.proxy.identity.lightproto import Field, Schema

SUBSCRIBE, PRODUCER, SEND, SEND_RECEIPT, SEND_ERROR, MESSAGE, ACK, FLOW, UNSUBSCRIBE = 4, 5, 6, 7, 8, 9, 10, 11, 12
SUCCESS, ERROR, CLOSE_PRODUCER, CLOSE_CONSUMER, PRODUCER_SUCCESS, PING, PONG, REDELIVER = 13, 14, 15, 16, 17, 18, 19, 20
PARTITIONED_METADATA, PARTITIONED_METADATA_RESPONSE, LOOKUP, LOOKUP_RESPONSE = 21, 22, 23, 24
CONSUMER_STATS, SEEK, GET_LAST_MESSAGE_ID, GET_LAST_MESSAGE_ID_RESPONSE = 25, 28, 29, 30
GET_TOPICS, GET_TOPICS_RESPONSE, GET_SCHEMA, ACK_RESPONSE, NEW_TXN, WATCH_CLOSE = 32, 33, 34, 38, 50, 67
METADATA_ERROR, AUTHORIZATION_ERROR, SERVICE_NOT_READY, PRODUCER_BUSY = 1, 4, 6, 16
CONNECT, FAILED_LOOKUP = 1, 2
FUTURE = (45, 75)
"""Types that no broker of today knows."""

_ID, _REQUEST = Field("id", "u64", required=True), Field("request", "u64", required=True)
_TOPIC = Field("topic", "text", required=True)

SCHEMAS: dict[int, Schema] = {
    SUBSCRIBE: {
        1: _TOPIC,
        2: Field("subscription", "text", required=True),
        3: Field("sub_type", "enum", required=True, words=4),
        4: _ID,
        5: _REQUEST,
        6: Field("name", "text"),
    },
    PRODUCER: {
        1: _TOPIC,
        2: _ID,
        3: _REQUEST,
        4: Field("name", "text"),
        8: Field("epoch", "u64"),
        10: Field("access", "enum", words=4),
    },
    SEND: {1: _ID, 2: Field("sequence", "u64", required=True), 3: Field("messages", "i32")},
    ACK: {
        1: _ID,
        2: Field("ack_type", "enum", required=True, words=2),
        3: Field("ids", "many"),
        8: Field("request", "u64"),
    },
    FLOW: {1: _ID, 2: Field("permits", "i32", required=True)},
    UNSUBSCRIBE: {1: _ID, 2: _REQUEST, 3: Field("force", "bool")},
    CLOSE_PRODUCER: {1: _ID, 2: _REQUEST},
    CLOSE_CONSUMER: {1: _ID, 2: _REQUEST},
    PING: {},
    PONG: {},
    REDELIVER: {1: _ID, 2: Field("ids", "many"), 3: Field("epoch", "u64")},
    PARTITIONED_METADATA: {1: _TOPIC, 2: _REQUEST},
    LOOKUP: {1: _TOPIC, 2: _REQUEST},
    CONSUMER_STATS: {1: _REQUEST, 4: _ID},
    SEEK: {1: _ID, 2: _REQUEST, 4: Field("time", "u64")},
    GET_LAST_MESSAGE_ID: {1: _ID, 2: _REQUEST},
    GET_TOPICS: {1: _REQUEST, 2: Field("namespace", "text", required=True)},
    GET_SCHEMA: {1: _REQUEST, 2: _TOPIC},
    NEW_TXN: {1: _REQUEST},
    WATCH_CLOSE: {1: _REQUEST, 2: _ID},
}
"""What brokers of today know, by type."""

_TEXT, _ERROR = Field("text", "text", required=True), Field("error", "enum", required=True, words=26)
_MANY = Field("of", "many", required=True)
OTHERS: dict[int, Schema] = {
    2: {1: _TEXT},
    3: {1: _TEXT},
    SEND_RECEIPT: {1: _ID, 2: _REQUEST},
    SEND_ERROR: {1: _ID, 2: _REQUEST, 3: _ERROR, 4: _TEXT},
    MESSAGE: {1: _ID, 2: _MANY},
    SUCCESS: {1: _REQUEST},
    ERROR: {1: _REQUEST, 2: _ERROR, 3: _TEXT},
    PRODUCER_SUCCESS: {1: _REQUEST, 2: _TEXT},
    PARTITIONED_METADATA_RESPONSE: {2: _REQUEST},
    LOOKUP_RESPONSE: {4: _REQUEST},
    26: {1: _REQUEST},
    27: {1: _ID},
    GET_LAST_MESSAGE_ID_RESPONSE: {1: _MANY, 2: _REQUEST},
    31: {1: _ID},
    GET_TOPICS_RESPONSE: {1: _REQUEST},
    35: {1: _REQUEST},
    ACK_RESPONSE: {1: _ID, 6: Field("request", "u64")},
}
"""What brokers read without expecting it from a client: what they need to find there, or they end the connection."""

OF_THE_FUTURE = (
    SCHEMAS | OTHERS | {kind: {number: Field(f"number{number}", "u64") for number in range(1, 5)} for kind in FUTURE}
)
"""What a broker to come knows besides: commands in which every number may be a request id."""

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
