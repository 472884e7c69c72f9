import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;

/**
 * Publishes the numbers from 0 on, unbatched, round after round as fast as it can, and prints what became of each in a
 * line of its own: {@code message <number> stored}, or {@code message <number> <name of the exception> <its message>}.
 *
 * <p>Arguments: service URL, topic, rounds, messages in a round, milliseconds between rounds.
 */
public class RejectedPublisher {

    public static void main(String[] arguments) throws Exception {
        int rounds = Integer.parseInt(arguments[2]);
        int inRound = Integer.parseInt(arguments[3]);
        long pauseMs = Long.parseLong(arguments[4]);
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).build();
                Producer<byte[]> producer = client.newProducer()
                        .topic(arguments[1]).enableBatching(false).blockIfQueueFull(true).create()) {
            List<CompletableFuture<String>> fates = new ArrayList<>();
            for (int round = 0; round < rounds; round++) {
                for (int number = 0; number < inRound; number++) {
                    fates.add(send(producer, fates.size()));
                }
                Thread.sleep(pauseMs);
            }
            for (CompletableFuture<String> fate : fates) {
                System.out.println("message " + fate.get(30, TimeUnit.SECONDS));
            }
        }
    }

    private static CompletableFuture<String> send(Producer<byte[]> producer, int number) {
        byte[] content = Integer.toString(number).getBytes(StandardCharsets.UTF_8);
        return producer.sendAsync(content).handle((MessageId id, Throwable error) -> number + " " + fate(error));
    }

    private static String fate(Throwable error) {
        if (error == null) {
            return "stored";
        }
        Throwable cause = error instanceof CompletionException ? error.getCause() : error;
        return cause.getClass().getSimpleName() + " " + cause.getMessage().replace('\n', ' ');
    }
}
