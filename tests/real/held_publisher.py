"""Sends so many messages without waiting, says `receipt` for each that it gets, and stays until it is killed.

Arguments: service URL, topic, messages.
"""

import signal
import sys

import pulsar


def main() -> None:
    url, topic, count = sys.argv[1:]
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(topic, producer_name="p", send_timeout_millis=0)

    def on_receipt(result: pulsar.Result, _: pulsar.MessageId) -> None:
        if result == pulsar.Result.Ok:
            print("receipt", flush=True)  # noqa: T201 - what the test reads

    for number in range(int(count)):
        producer.send_async(str(number).encode(), on_receipt)
    signal.pause()


if __name__ == "__main__":
    main()
