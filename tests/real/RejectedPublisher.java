import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;

/**
 * Publishes the numbers from 0 on, round after round as fast as it can, and prints what became of each in a line of its
 * own: {@code message <number> <milliseconds until it was known> stored}, or, in the place of the last word, the name of
 * the exception and its message.
 *
 * <p>Arguments: service URL, topic, {@code batches}, {@code single} or {@code chunks} (of 20,000 bytes), rounds,
 * messages in a round, milliseconds between rounds, bytes of each message, filled up with zeros.
 */
public class RejectedPublisher {

    private static final int CHUNK = 20_000;

    public static void main(String[] arguments) throws Exception {
        int rounds = Integer.parseInt(arguments[3]);
        int inRound = Integer.parseInt(arguments[4]);
        long pauseMs = Long.parseLong(arguments[5]);
        int size = Integer.parseInt(arguments[6]);
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).build();
                Producer<byte[]> producer = opened(client, arguments[1], arguments[2])) {
            List<CompletableFuture<String>> fates = new ArrayList<>();
            for (int round = 0; round < rounds; round++) {
                for (int number = 0; number < inRound; number++) {
                    fates.add(send(producer, fates.size(), size));
                }
                Thread.sleep(pauseMs);
            }
            for (CompletableFuture<String> fate : fates) {
                System.out.println("message " + fate.get(150, TimeUnit.SECONDS));
            }
        }
    }

    private static Producer<byte[]> opened(PulsarClient client, String topic, String kind) throws Exception {
        ProducerBuilder<byte[]> builder = client.newProducer().topic(topic).blockIfQueueFull(true)
                .sendTimeout(120, TimeUnit.SECONDS);
        if (!kind.equals("batches")) {
            builder.enableBatching(false);
        }
        if (kind.equals("chunks")) {
            builder.enableChunking(true).chunkMaxMessageSize(CHUNK);
        }
        return builder.create();
    }

    private static CompletableFuture<String> send(Producer<byte[]> producer, int number, int size) {
        byte[] content = Integer.toString(number).getBytes(StandardCharsets.UTF_8);
        long sentAt = System.nanoTime();
        return producer.newMessage().property("producer", "java").value(Arrays.copyOf(content, size)).sendAsync()
                .handle((MessageId id, Throwable error) -> number + " "
                        + TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - sentAt) + " " + fate(error));
    }

    private static String fate(Throwable error) {
        if (error == null) {
            return "stored";
        }
        Throwable cause = error instanceof CompletionException ? error.getCause() : error;
        return cause.getClass().getSimpleName() + " " + cause.getMessage().replace('\n', ' ');
    }
}
